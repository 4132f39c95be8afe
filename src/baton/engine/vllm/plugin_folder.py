"""The folder that a vLLM server needs on its PYTHONPATH to be given weights: `weights_plugin` as a plug-in of its own.

vLLM finds plug-ins by the entry points of what is installed beside it. A folder with the module and a `dist-info` of a
few lines is found the same way wherever it is on the path, so that nothing is installed into the server's environment.
For a server of your own:

    python -m baton.engine.vllm.plugin_folder DIR       # prints how to start it
"""

from __future__ import annotations

import sys
from pathlib import Path

MODULE = "baton_vllm_weights"
GROUP_MODULE = "baton_vllm_group"
BACKEND = "baton"
SERVER_ARGUMENTS = (
    "--weight-transfer-config",
    f'{{"backend":"{BACKEND}"}}',
    "--worker-extension-cls",
    f"{MODULE}.Receipts",
)
"""What a server is started with to take weights."""
SERVER_ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
_VERSION = "1.0"


def write_plugin(folder: Path) -> Path:
    """Make the folder; the same again changes nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    for source, name in (("weights_plugin", MODULE), ("weights_group", GROUP_MODULE)):
        (folder / f"{name}.py").write_text(Path(__file__).with_name(f"{source}.py").read_text())
    info = folder / f"{MODULE}-{_VERSION}.dist-info"
    info.mkdir(exist_ok=True)
    name = MODULE.replace("_", "-")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {_VERSION}\n")
    (info / "entry_points.txt").write_text(f"[vllm.general_plugins]\nbaton_weights = {MODULE}:register\n")
    return folder


if __name__ == "__main__":
    made = write_plugin(Path(sys.argv[1] if len(sys.argv) > 1 else "baton-vllm-plugin")).resolve()
    settings = " ".join(f"{key}={value}" for key, value in SERVER_ENVIRONMENT.items())
    options = f"{SERVER_ARGUMENTS[0]} '{SERVER_ARGUMENTS[1]}' {' '.join(SERVER_ARGUMENTS[2:])}"
    print(f"{settings} PYTHONPATH={made} vllm serve MODEL --enable-scale-out {options}")
