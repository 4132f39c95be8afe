"""Sealed shards: finished traces as Parquet tables in a directory, for good and for queries."""
