"""Keys as machine words or byte strings: normalisation, hashes, order."""
