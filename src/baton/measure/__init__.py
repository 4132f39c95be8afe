"""Pure functions from traces to figures."""
