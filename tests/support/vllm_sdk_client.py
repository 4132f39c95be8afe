"""A program on the openai SDK, run in an environment of its own: it asks an endpoint and prints what it was told.

Arguments: the endpoint's address, the session's name, the model's name. It knows nothing of Baton.
"""

import json
import sys

import openai

COLOUR = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "deep blue"]}, "sure": {"type": "boolean"}},
    "required": ["colour", "sure"],
    "additionalProperties": False,
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": "d", "strict": True, "parameters": {
            "type": "object", "properties": {"place": {"enum": ["Rome", "Århus", "Łódź"]}},
            "required": ["place"], "additionalProperties": False,
        }},
    }
    for name in ("look_up", "go-to")
]  # fmt: skip


def main(url: str, session: str, model: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=f"baton-{session}", max_retries=0, timeout=120)
    ask = client.chat.completions.create
    told: dict = {}
    user = [{"role": "user", "content": "Say a colour: é 漢"}]
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": COLOUR, "strict": True}}
    told["json"] = [
        ask(model=model, messages=user, response_format=form, max_tokens=200, seed=k)
        .choices[0]
        .message.content
        for k in range(4)
    ]
    told["tools"] = []
    for choice in ("required", {"type": "function", "function": {"name": "go-to"}}):
        said = ask(model=model, messages=user, tools=TOOLS, tool_choice=choice, max_tokens=900).choices[0]
        calls = [(use.function.name, use.function.arguments) for use in said.message.tool_calls or ()]
        told["tools"].append([said.finish_reason, calls])
    some = ask(model=model, messages=user, logprobs=True, top_logprobs=4, max_tokens=12, temperature=0.8)
    told["top_logprobs"] = [
        [each.logprob, [[top.token, top.logprob] for top in each.top_logprobs]]
        for each in some.choices[0].logprobs.content
    ]
    many = ask(model=model, messages=user, n=3, max_tokens=16)
    told["n"] = [each.message.content for each in many.choices]
    free = ask(model=model, messages=user, max_tokens=60, seed=5).choices[0].message.content
    told["free"] = free
    streamed = ask(model=model, messages=user, max_tokens=60, seed=5, stream=True)
    told["streamed"] = "".join(part.choices[0].delta.content or "" for part in streamed if part.choices)
    talk = [{"role": "system", "content": "You talk."}]
    told["turns"] = []
    for turn in range(50):
        talk.append({"role": "user", "content": f"A{'AA the in' * (turn % 3)} {turn}"})
        said = ask(model=model, messages=talk, max_tokens=14).choices[0].message.content
        talk.append({"role": "assistant", "content": said})
        told["turns"].append(said)
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
