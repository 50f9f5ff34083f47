"""The shuffle of rows between tasks: blocks, their files, and the partitions that receive them."""
