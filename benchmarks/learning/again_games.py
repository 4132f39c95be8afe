"""The games of result 21: one run of an arm on a game, and how jobs of it are made and summed up."""

from __future__ import annotations

import time

from result2_stop import GAMES as STOPPING
from result2_stop import MORE, fixed_and_oracle
from runs import Job, Record, interval, markdown, measure, shown
from zero_credit import REASONS, added, counted, share

SPAWN = "spawn-bandit"
GAMES = (SPAWN, "stopping-chain", "batch-search", "sequential-test", "pandora")
ORDER = (GAMES[:3], GAMES[3:4], GAMES[4:])
"""Games that are tuned and then tested together; the dearest come last."""
RATES = (1e-4, 3e-4, 1e-3)
TUNING = {game: (1000, 1001) if game != "pandora" else (1000,) for game in GAMES}
DECISION, TAKEN, UNIFORM = "by decision", "by decision, taken options", "uniform"
ARMS = (DECISION, TAKEN, UNIFORM)
SAMPLED = ("credit.0.normalise=true", "train.options=sampled", "train.epochs=2")
GROUP = ("credit.0.estimator=group", "credit.0.group_by=task")
UNENDING = 100_000
"""Steps of a run that ends by its tokens."""


def arms_of(game: str) -> tuple[str, ...]:
    """Paired forks credit what was taken, so there is no second arm of theirs."""
    return (DECISION, UNIFORM) if game == SPAWN else ARMS


def recipe_name(game: str) -> str:
    return "spawn" if game == SPAWN else "stop"


def changes_of(game: str, arm: str, rate: float, quick: bool) -> list[str]:
    """What an arm changes in the game's recipe."""
    found = [f"train.learning_rate={rate}", "train.threads=1"]
    if game == SPAWN:
        found += ["credit.0.normalise=true", *(GROUP if arm == UNIFORM else ())]
    else:
        found += [f"task.name=game:{game}"]
        found += [f"task.settings.{name}={value}" for name, value in STOPPING[game].items()]
        found += [] if quick else MORE.get(game, ())
        found += {DECISION: (), TAKEN: SAMPLED, UNIFORM: (*SAMPLED, *GROUP, "critic=null")}[arm]
    if arm == UNIFORM:
        found += [f"train.steps={UNENDING}"]
    elif quick:
        found += ["train.steps=2"]
    less = ("rollout.groups=8", "warm.steps=20", "warm.episodes=50", "eval.episodes=16")
    return [*found, *(less if quick else ("eval.episodes=512",))]


def jobs(
    games: tuple[str, ...], num_seeds: int, quick: bool, rates: dict[str, dict[str, float]] | None = None
) -> list[Job]:
    """Without rates, the tuning runs; with them, the test runs. A job is a game and a seed, all arms of it."""
    if rates is None:
        told = [(game, seed, rate) for game in games for rate in RATES for seed in TUNING[game]]
        return [
            {
                "phase": "tuning", "game": game, "seed": seed, "arm": f"{game} at {rate}",
                "rates": dict.fromkeys(ARMS, rate), "quick": quick,
            }
            for game, seed, rate in told
        ]  # fmt: skip
    return [
        {"phase": "test", "game": game, "seed": seed, "arm": game, "rates": rates[game], "quick": quick}
        for game in games
        for seed in range(num_seeds)
    ]


def best_rates(tuned: list[Record]) -> dict[str, dict[str, float]]:
    """For each game and arm the rate with the least regret, mean of the tuning seeds."""
    found: dict[str, dict[str, float]] = {}
    for game in dict.fromkeys(each["game"] for each in tuned):
        mine = [each for each in tuned if each["phase"] == "tuning" and each["game"] == game]
        found[game] = {arm: min(RATES, key=lambda rate: _tuned(mine, arm, rate)) for arm in arms_of(game)}
    return found


def _tuned(records: list[Record], arm: str, rate: float) -> float:
    return interval(regret(each, arm) for each in records if each["rates"][arm] == rate)[0]


def regret(record: Record, arm: str) -> float:
    """After the last step, invalid answers charged."""
    return float(record["arms"][arm]["after"]["regret"]["total"])


def worker(job: Job) -> Record:
    """All arms of a game and a seed; those that are not by decision are given its tokens."""
    began = time.process_time()
    game, quick = job["game"], job["quick"]
    found: dict[str, Record] = {}
    for arm in arms_of(game):
        changes = [*changes_of(game, arm, job["rates"][arm], quick), f"train.seed={job['seed']}"]
        tokens = found[DECISION]["tokens"] if arm == UNIFORM else None
        before = found[DECISION]["before"] if found else None  # all arms have one start
        found[arm] = trained(recipe_name(game), changes, tokens, before)
    told = {"references": references(game)} if job["phase"] == "test" and job["seed"] == 0 else {}
    return {**job, "arms": found, **told, "cpu_seconds": time.process_time() - began}


def trained(name: str, changes: list[str], tokens: int | None, before: Record | None) -> Record:
    """One run: to the recipe's last step, or to the first that ends with so many tokens."""
    from baton.compose.training import make_trainer
    from baton.learn.recipe import load
    from baton.learn.trainer import Diverged
    from baton.trace.outcome import team_return

    recipe = load(name, changes)
    trainer = make_trainer(recipe)
    found: Record = {"before": before or measure(trainer, recipe), "curve": []}
    zero = []
    try:
        while trainer.step_number < recipe.train.steps and (tokens is None or trainer.total_tokens < tokens):
            made = trainer.step()
            zero.append(counted([made.traces], team_return))
            told = made.metrics
            found["curve"].append([told["total_tokens"], told["return"]["mean"], told["sizes"]["invalid"]])
    except Diverged as error:
        found["diverged"] = str(error)
    found |= {"after": measure(trainer, recipe), "steps": trainer.step_number}
    trainer.close()
    return found | {"tokens": trainer.total_tokens, "zero": added(zero)}


def references(name: str) -> Record:
    """Exact values: the optimum, random play, the best single agent, and the best fixed number of rounds."""
    from baton.games.library import make_game
    from baton.games.solve import solve
    from baton.learn.run.evaluate import references as exact

    game = make_game(name, STOPPING.get(name, {}))
    solution = solve(game)
    found = {line["who"]: line["return"]["mean"] for line in exact(game)}
    if name != SPAWN:
        found["fixed rounds"] = fixed_and_oracle(game, solution, 0.0)[0]
    return {who: round(solution.value - value, 9) + 0.0 for who, value in found.items()} | {
        "value": solution.value
    }


def table(records: list[Record]) -> str:
    """Regret by game and arm, against uniform credit and the single agent; then events without credit."""
    tests = {g: [r for r in records if r["phase"] == "test" and r["game"] == g] for g in GAMES}
    most = max(map(len, tests.values()))
    whole = [
        game for game in GAMES if most and len(tests[game]) == most
    ]  # one that was cut short is left out
    return "\n\n".join((_regrets(tests, whole), _zeros(tests, whole)))


def _regrets(tests: dict[str, list[Record]], games: list[str]) -> str:
    rows = []
    for game in games:
        mine = tests[game]
        exact = next((r["references"] for r in mine if "references" in r), {})
        for arm in arms_of(game):
            mean = [regret(r, arm) for r in mine]
            less = [regret(r, UNIFORM) - regret(r, arm) for r in mine]
            rows.append([
                game, arm, f"{mine[0]['rates'][arm]:g}", str(len(mine)),
                shown((r["arms"][arm]["before"]["regret"]["total"] for r in mine), ".3f"), shown(mean, ".4f"),
                shown((r["arms"][arm]["after"]["regret"]["invalid"] for r in mine), ".4f"),
                "" if arm == UNIFORM else shown(less, ".4f"),
                shown((exact["single-agent"] - each for each in mean), ".4f"),
                shown((r["arms"][arm]["tokens"] / 1e3 for r in mine), ".0f"),
                shown((r["arms"][arm]["steps"] for r in mine), ".0f"),
            ])  # fmt: skip
        rows += [
            [game, f"{who}, exact", "", "", "", f"{exact[who]:.4f}", *[""] * 5]
            for who in ("single-agent", "fixed rounds", "random")
            if who in exact
        ]
    heading = (
        "game", "who", "rate", "seeds", "regret before", "regret after", "of it invalid answers", "uniform less this",
        "single agent less this", "thousand tokens", "steps",
    )  # fmt: skip
    return markdown(heading, rows)


def _zeros(tests: dict[str, list[Record]], games: list[str]) -> str:
    rows = []
    for game in games:
        for arm in arms_of(game):
            counts = [r["arms"][arm]["zero"] for r in tests[game]]
            shares = [[share(each, reason) for each in counts] for reason in (None, *REASONS)]
            events = f"{sum(each['events'] for each in counts):,}"
            rows.append([game, arm, events, *(shown(each, ".3f") for each in shares)])
    heading = (
        "game", "credit", "events", "share with zero credit", "all returns alike", "on invalid answers", "one option",
        "other",
    )  # fmt: skip
    return markdown(heading, rows)


def quick_rates() -> dict[str, dict[str, float]]:
    """Of a run that shows that the command runs."""
    return {game: dict.fromkeys(arms_of(game), 3e-4) for game in GAMES}
