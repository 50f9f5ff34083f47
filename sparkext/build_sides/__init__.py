"""Build sides and their indexes: made, published, kept."""
