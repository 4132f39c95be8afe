"""Lets the tests here import the planted traces they share, and the chaotic teams of the runtime's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "team"))  # from chaos import ...
