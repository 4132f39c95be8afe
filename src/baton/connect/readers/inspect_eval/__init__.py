"""Inspect's logs: `.eval` (a ZIP of JSON, mostly under zstd) and `.json`."""
