"""Reward rules by family, R1 to R7 (R8 is hybrid, beside this folder)."""
