"""Learning under constraint: costs beside the reward, and a price on each that keeps it within its limit."""
