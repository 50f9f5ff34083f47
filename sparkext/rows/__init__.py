"""What flows through a pipeline: sets of rows, morsels, conditions on them."""
