"""Operations on single values: dates, texts, and Python's numbers."""
