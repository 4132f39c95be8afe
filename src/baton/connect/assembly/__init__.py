"""How sightings become a trace: gathered, named, put in line, linked, ordered, written down."""
