"""The estimators, by what they compare: groups, turns, events, values, messages, coalitions, spawns, stops."""
