"""A guard: what a team may do once somebody in it has read what strangers wrote."""
