"""The data of a pipeline: sets of rows, morsels, and expressions evaluated on them."""
