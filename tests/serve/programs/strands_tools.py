"""A Strands program: an agent whose tools are agents."""

import os
import sys

from strands import Agent, tool
from strands.models.openai import OpenAIModel

model = OpenAIModel(
    client_args={"base_url": os.environ["OPENAI_BASE_URL"], "api_key": os.environ["OPENAI_API_KEY"]},
    model_id="any",
)


@tool
def lookup(q: str) -> str:
    """Look it up."""
    return f"nothing is known of {q}"


@tool
def research(question: str) -> str:
    """Let the scout find something out."""
    scout = Agent(
        model=model, name="scout", system_prompt="You are the scout. Look things up.", tools=[lookup],
        callback_handler=None,
    )  # fmt: skip
    return str(scout(question))


@tool
def weigh(claim: str, with_care: bool = True) -> str:
    """Let the judge weigh something."""
    judge = Agent(
        model=model,
        name="judge",
        system_prompt="You are the judge. Weigh what you are told.",
        callback_handler=None,
    )
    return str(judge(f"Is this right? {claim}" + (" Take care." if with_care else "")))


lead = Agent(
    model=model, name="lead", system_prompt="You are the lead. Let others work.", tools=[research, weigh],
    callback_handler=None,
)  # fmt: skip
print(str(lead(sys.argv[1])).strip())
