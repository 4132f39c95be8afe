"""The survey's JSON: one trace in the form that arXiv 2605.02801 defines, in and out."""
