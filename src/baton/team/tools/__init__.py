"""Tools that agents call, and the sandbox in which untrusted code runs."""
