"""The OTLP receiver's parts: the journal of requests, and traces that are kept up to date with it."""
