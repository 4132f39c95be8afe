"""The figures by family: success, parallelism, collaboration, overhead, stopping, votes, failure modes."""
