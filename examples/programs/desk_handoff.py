"""A help desk with the OpenAI Agents SDK: the front desk hands the conversation over to a department.

python desk_handoff.py "Where is the rake?"
"""

import sys

from agents import Agent, Runner
from stock import AISLES, FRONT, knows, knows_all


def main() -> None:
    if sys.argv[1] == "--alone":
        alone = Agent(name="everything", instructions=knows_all())
        print(Runner.run_sync(alone, sys.argv[2]).final_output)
        return
    desks = [Agent(name=name, instructions=knows(name)) for name in AISLES]
    front = Agent(name="front", instructions=FRONT, handoffs=desks)
    print(Runner.run_sync(front, sys.argv[1], max_turns=4).final_output)


main()
