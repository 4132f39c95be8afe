"""Lets the tests here import their chaotic teams."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))  # from tiny_model import ...
