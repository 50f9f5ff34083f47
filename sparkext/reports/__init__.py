"""Reports: metrics of tasks, their transport to the driver, and their display as text and as HTML."""
