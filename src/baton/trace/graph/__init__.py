"""The trace's graph as arrays: cones, timing, stages, and who spawned whom."""
