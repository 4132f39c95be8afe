"""What people read in a terminal: trees, tables, progress."""
