"""The prefix forest: rows of traced calls as one batch in which every shared token is computed once."""
