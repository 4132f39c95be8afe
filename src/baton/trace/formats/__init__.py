"""Files that hold traces, in and out."""
