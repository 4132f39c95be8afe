"""Conformance checks to run on your own extensions."""
