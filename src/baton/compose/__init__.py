"""Where settings become objects: a team from its settings, a run again from its trace, training from a recipe."""
