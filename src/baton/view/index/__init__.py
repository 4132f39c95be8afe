"""All traces of all places as lines of one table: read once, in the background, and asked in a small language."""
