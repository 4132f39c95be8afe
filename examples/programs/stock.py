"""What a help desk knows: its departments, what each of them has, and the aisle that it is in."""

AISLES = {"garden": "A1", "kitchen": "B2", "paint": "C3", "tools": "D4"}
ITEMS = {
    "garden": ("rake", "seeds"),
    "kitchen": ("kettle", "plate"),
    "paint": ("brush", "varnish"),
    "tools": ("hammer", "drill"),
}
"""Nobody is told this: which department has what is to be learned."""

FRONT = "Front desk: hand over to the right desk."
MANAGER = "Front desk: ask the right desk, then repeat its answer."


def knows(department: str) -> str:
    """What an agent of a department is told."""
    return f"Desk of {department}: say your aisle, {AISLES[department]}."


def knows_all() -> str:
    """What a single agent is told, who has no colleagues."""
    return f"All desks: say the aisle: {', '.join(f'{name} {aisle}' for name, aisle in AISLES.items())}."
