"""Build sides and their indexes: built, published and cached."""
