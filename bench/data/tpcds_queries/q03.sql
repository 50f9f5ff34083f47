SELECT dt.d_year, i_brand_id brand_id, i_brand brand, sum(ss_ext_sales_price) sum_agg
FROM date_dim dt, store_sales, item
WHERE dt.d_date_sk = ss_sold_date_sk
  AND ss_item_sk = i_item_sk
  AND i_manufact_id = 128
  AND dt.d_moy = 11
GROUP BY dt.d_year, i_brand, i_brand_id
ORDER BY dt.d_year, sum_agg DESC, brand_id
LIMIT 100
