"""The web page over traces: a server on loopback, and the same page as one file."""
