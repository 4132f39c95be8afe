"""Campaigns of faults: each kills, damages, starves or lies to Baton by a seeded schedule and looks at what is left."""
