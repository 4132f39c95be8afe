"""Training with nothing in between: play, score, credit, update. What `baton train` does, without its engine.

A tiny language model learns a game exactly solved elsewhere: stop, or wait for more workers? GRPO's advantage over
rollouts of one instance, clipped ratio, one update per step. The game scores itself, less a price for each answer that
is no command; without it the cheapest thing to learn is to babble until the game plays a default. Credit goes to every
token.

Type: python examples/bare_loop.py
"""

import asyncio
from statistics import fmean

import torch
from msgspec import structs

from baton.credit.estimators.group import group_relative
from baton.credit.project import project
from baton.engine.scripted import ScriptedEngine
from baton.engine.torch import TorchEngine
from baton.forest.rows import rows_of
from baton.games.library import make_game
from baton.games.solve import solve
from baton.learn.loss import Loss
from baton.learn.models.start import spoken_in, texts_of, warm_start
from baton.learn.models.tiny import Tiny, make_tiny
from baton.learn.rollouts import lockstep
from baton.learn.update import Gradients, Packed
from baton.tasks.game_task import GameTask
from baton.team.protocol import Engine, Sampling
from baton.team.running import run
from baton.team.team import Team
from baton.trace import Trace
from baton.trace.outcome import team_return

NUM_STEPS, NUM_GROUPS, GROUP_SIZE = 30, 16, 8
HELD_OUT = list(range(20_000, 20_128))
game = make_game("stopping-chain", {})
task = GameTask(game)
own = task.topology()
# Each turn reads only the state note, so prompts repeat and the prefix forest computes them once.
brief = Sampling(max_tokens=16)
roles = tuple(structs.replace(role, memory="latest", sampling=brief) for role in own.roles)
topology = structs.replace(own, roles=roles)
nature = ScriptedEngine("nature", lambda _: "return done")  # the game's other agents are part of the game


async def play(engine: Engine, instances: list[int], name: str) -> list[Trace]:
    """A rollout of each instance, side by side; calls are answered in batches."""
    (answers,) = lockstep({"main": engine}).values()
    engines: dict[str, Engine] = {role.name: nature for role in roles} | {topology.root: answers}
    runs = []
    for number, instance in enumerate(instances):
        assignment = task.assignment(task.instance(instance))
        team = Team.of(topology, engines, template="", tools=assignment.tools, seed=1000 * instance + number)
        runs.append(run(team, assignment, trace_id=f"{name}-{number}"))
    return list(await asyncio.gather(*runs))


def score(trace: Trace) -> float:
    """What the game paid, less a price for answers it could not read."""
    return team_return(trace) - 0.5 * sum(event.status == "invalid" for event in trace.events)


def evaluate(engine: Engine, name: str) -> str:
    """The same instances before and after, none of them trained on."""
    traces = asyncio.run(play(engine, HELD_OUT, name))
    return f"{name}: return {fmean(map(team_return, traces)):.3f} of {solve(game).value:.3f}"


def main() -> None:
    torch.set_num_threads(1)

    # A model that says the game's commands at random: the grammar, learned from scripted play.
    scripted = asyncio.run(
        play(ScriptedEngine("random", task.script("random")), list(range(10_000, 10_200)), "warm")
    )
    spoken = spoken_in(scripted, [topology.root])
    model, tokenizer = make_tiny(texts_of(spoken), Tiny(width=64, vocabulary=320), seed=0)
    warm_start(model, tokenizer, spoken, steps=150, rows=32, learning_rate=0.005, seed=0)

    engine = TorchEngine(model, tokenizer, name="main")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    gradients = Gradients(model, Loss(kind="ppo", low=0.2, high=0.2), Packed())
    print(evaluate(engine, "before"))

    for step in range(1, NUM_STEPS + 1):
        # Play: groups of rollouts, each group on one instance.
        instances = [NUM_GROUPS * step + group for group in range(NUM_GROUPS) for _ in range(GROUP_SIZE)]
        traces = asyncio.run(play(engine, instances, f"step-{step}"))
        groups = [traces[at : at + GROUP_SIZE] for at in range(0, len(traces), GROUP_SIZE)]

        # Score and credit: one number for each rollout, brought down to the tokens that were said.
        rows = []
        for group in groups:
            for trace, credits in zip(group, group_relative(group, reward=score), strict=True):
                rows += rows_of(trace, project(trace, credits))
        rows = [row for row in rows if row.policy == "main"]

        # Update: rows as a prefix forest, through the loss. Meanwhile the sampler waits.
        with engine.updating(str(step)):
            optimizer.zero_grad()
            report = gradients.backward(rows, version=str(step - 1))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        read, mean = sum(len(row.ids) for row in rows), fmean(map(score, traces))
        print(f"step {step:2d}  score {mean:6.3f}  {report.num_computed} of {read} tokens computed")

    print(evaluate(engine, "after"))


if __name__ == "__main__":
    main()
