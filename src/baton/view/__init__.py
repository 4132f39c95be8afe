"""What people look at: trees in the terminal, pages and reports."""
