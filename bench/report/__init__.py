"""Result files, their comparison, tables and figures."""
