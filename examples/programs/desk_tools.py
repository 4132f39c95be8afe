"""A help desk with the OpenAI Agents SDK: the front desk asks departments as its tools, and answers itself.

python desk_tools.py "Where is the rake?"
"""

import sys

from agents import Agent, Runner
from stock import AISLES, MANAGER, knows, knows_all


def main() -> None:
    if sys.argv[1] == "--alone":
        alone = Agent(name="everything", instructions=knows_all())
        print(Runner.run_sync(alone, sys.argv[2]).final_output)
        return
    desks = [
        Agent(name=name, instructions=knows(name)).as_tool(f"ask_{name}", f"Ask the {name} desk.")
        for name in AISLES
    ]
    manager = Agent(name="front", instructions=MANAGER, tools=desks)
    print(Runner.run_sync(manager, sys.argv[1], max_turns=4).final_output)


main()
