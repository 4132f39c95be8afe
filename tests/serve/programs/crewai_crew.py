"""A crewAI program: a crew of two tasks, whose first agent delegates to a coworker."""

import os
import sys

from crewai import LLM, Agent, Crew, Process, Task

model = LLM(model="openai/any", base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
lead = Agent(
    role="lead",
    goal="Let others work.",
    backstory="You are the lead of a crew.",
    llm=model,
    allow_delegation=True,
)
scout = Agent(role="scout", goal="Look things up.", backstory="You are the scout of a crew.", llm=model)
writer = Agent(role="writer", goal="Write it down.", backstory="You are the writer of a crew.", llm=model)
first = Task(description=f"Find out: {sys.argv[1]}", expected_output="one sentence", agent=lead)
second = Task(description="Write a line about what was found.", expected_output="one line", agent=writer)
crew = Crew(agents=[lead, scout, writer], tasks=[first, second], process=Process.sequential, verbose=False)
print(crew.kickoff().raw)
