"""Validation at three levels: shape, structure, meaning."""
