"""Learning: recipes, policies, rollouts, rewards, credit, losses, critics and the trainer. Loads no torch by itself."""
