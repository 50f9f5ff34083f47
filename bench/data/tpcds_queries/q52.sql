SELECT dt.d_year, i_brand_id brand_id, i_brand brand, sum(ss_ext_sales_price) ext_price
FROM date_dim dt, store_sales, item
WHERE dt.d_date_sk = ss_sold_date_sk
  AND ss_item_sk = i_item_sk
  AND i_manager_id = 1
  AND dt.d_moy = 11
  AND dt.d_year = 2000
GROUP BY dt.d_year, i_brand, i_brand_id
ORDER BY dt.d_year, ext_price DESC, brand_id
LIMIT 100
