"""Attention over a prefix forest: as parts on any device, or as one kernel with a block mask on CUDA."""
