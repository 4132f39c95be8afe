"""Record a small team with your own code: an orchestrator, two searchers with a tool, one answer.

Type: python examples/record_a_team.py runs/first && baton show runs/first/trace.jsonl
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from baton import Recorder

ATLAS = {"capital of Australia": "Canberra", "population of Canberra": "about 470,000"}


def look_up(agent, query):
    with agent.tool("atlas", {"query": query}, pure=True) as call:
        time.sleep(0.1)  # stands for a real tool
        call.result(ATLAS[query])
    agent.returns(ATLAS[query])
    return ATLAS[query]


folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/first")
folder.mkdir(parents=True, exist_ok=True)
(folder / "trace.jsonl").unlink(missing_ok=True)  # a recorder adds to a file that is there

with Recorder(folder / "trace.jsonl", task_id="canberra", topology="centralized") as team:
    lead = team.agent("lead", role="orchestrator")
    lead.call(prompt="How large is Australia's capital?", completion="<spawn ...", completion_tokens=31)
    scout = lead.spawn("scout", role="searcher", task="Which city?", propensity=0.9)
    counter = lead.spawn("counter", role="searcher", task="How many people?", propensity=0.8)
    lead.send(counter, "Count people, not households.")
    with ThreadPoolExecutor() as pool:
        answer = ", ".join(pool.map(look_up, (scout, counter), ATLAS))
    lead.aggregate([scout, counter], answer, method="merge")
    lead.stop(answer)
    team.reward("shared", 1.0, by="exact match")
print(f"Recorded {folder / 'trace.jsonl'}")
