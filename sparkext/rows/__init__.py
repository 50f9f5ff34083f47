"""The data of a pipeline: row sets, morsels, and columns with their types."""
