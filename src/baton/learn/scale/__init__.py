"""Past one process: rollout workers, updates in several processes, weights at a service; `[scale]` of a recipe."""
