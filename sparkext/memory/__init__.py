"""How much memory is free, and who shares it."""
