"""One of two processes that add up tensors over gloo: `python -m baton.compose.doctor.gloo_probe STORE SECONDS RANK`.

The first says on standard output what torch is and what the sum was, a line of JSON each, so that the first line
stands where the second cannot be had.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path


def main(store: str, seconds: float, rank: int) -> None:
    """Meet the other one at a file, and add up."""
    import torch
    from torch import distributed

    told = {
        "version": torch.__version__,
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "distributed": distributed.is_available(),
        "gpus": [
            {"name": properties.name, "memory": properties.total_memory}
            for properties in map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        ],
    }
    if rank == 0:
        print(json.dumps(told), flush=True)
    if not distributed.is_available():
        return
    distributed.init_process_group(
        "gloo", init_method=Path(store).as_uri(), rank=rank, world_size=2, timeout=timedelta(seconds=seconds)
    )
    mine = torch.arange(7, dtype=torch.float32) * (rank + 1)
    distributed.all_reduce(mine)
    if rank == 0:
        print(json.dumps({"sum": mine.tolist(), "expected": [3.0 * k for k in range(7)]}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
