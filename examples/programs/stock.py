"""What the help desk's departments know: what they sell, and on which shelf it lies."""

STOCK = {
    "garden": {"rake": "A1", "hose": "A2", "spade": "A3", "seeds": "A4"},
    "kitchen": {"pan": "B1", "knife": "B2", "kettle": "B3", "plate": "B4"},
    "paint": {"brush": "C1", "roller": "C2", "varnish": "C3", "primer": "C4"},
    "tools": {"hammer": "D1", "saw": "D2", "drill": "D3", "screws": "D4"},
}


def knows(department: str) -> str:
    """What an agent of a department is told."""
    shelves = ", ".join(f"{item} {shelf}" for item, shelf in STOCK[department].items())
    return f"You are the {department} desk. Shelves: {shelves}. Answer with the shelf alone."


def knows_all() -> str:
    """What a single agent is told, who has no colleagues."""
    shelves = ", ".join(f"{item} {shelf}" for each in STOCK.values() for item, shelf in each.items())
    return f"You are the desk for everything. Shelves: {shelves}. Answer with the shelf alone."


TRIAGE = "You are the front desk. Hand over to the desk that has what is asked for."
MANAGER = "You are the front desk. Ask the desk that has what is asked for, and repeat its answer."
