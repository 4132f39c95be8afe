"""How well spawns and returns are found from prompts alone: made-up programs by kind of difficulty, with their truth.

    python benchmarks/lineage.py                    # 25 cases of each kind and 200 mixed ones
    python benchmarks/lineage.py --cases 5 --kind retries

A spawn is right where the agent's first call is that agent's first call, and its parent is its parent; `tool` also
asks for the very tool use that began it. A return is right where the answer and the ask that tells it are. An agent's
calls are right where the first call of whoever is said to have asked is that agent's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable

from msgspec import Struct

from baton.serve.lineage.askers import Site
from baton.serve.lineage.team import AskingTeam, team_of
from made_teams import KINDS, MIXED, MadeTeam, Truth, made_team


class Score(Struct):
    """Counts of one or more cases."""

    cases: int = 0
    calls: int = 0
    calls_right: int = 0
    spawns: int = 0
    spawns_said: int = 0
    spawns_right: int = 0
    tools_right: int = 0
    returns: int = 0
    returns_said: int = 0
    returns_right: int = 0

    def add(self, other: Score) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def score(made: MadeTeam, team: AskingTeam | None = None) -> Score:
    """One case against its truth."""
    team = team_of(made.exchanges) if team is None else team
    truth, askers = made.truth, team.askers
    said = {one.id: askers.life(one.place) for one in askers.heard}
    first = {asker.number: askers.heard[asker.heard[0]].id for asker in askers.all()}
    firsts = _firsts(truth)
    found = Score(cases=1, calls=len(made.exchanges))
    found.calls_right = sum(first[said[id_].number] == firsts[agent] for id_, agent in truth.agent_of.items())
    found.spawns = len(truth.spawned)
    sites = {askers.at(work.errand.life).number: work.errand.site for work in team.works if work.errand.first}
    by_use = {site.use.id: site for site in askers.sites}
    for number, (parent, _) in team.parents.items():
        found.spawns_said += 1
        agent = truth.agent_of[first[number]]
        if firsts[agent] != first[number] or agent not in truth.spawned:
            continue
        by = "program" if parent is None else truth.agent_of[first[askers.at(parent).number]]
        right = truth.spawned[agent][0] == by
        found.spawns_right += right
        found.tools_right += right and _same_tool(sites.get(number), by_use.get(truth.spawned[agent][1]))
    found.returns = len(truth.heard)
    for work in team.works:
        if work.returns is not None and work.returns.heard is not None:
            found.returns_said += 1
            pair = (askers.heard[work.returns.place].id, askers.heard[work.returns.heard].id)
            found.returns_right += pair in truth.heard
    return found


def _same_tool(said: Site | None, true: Site | None) -> bool:
    """The very tool use, or one that nothing tells from it: the same tool, words and result, asked for at once."""
    if said is None or true is None:
        return said is true
    if said is true:
        return True
    words = [
        (site.place, site.use.name, site.asked, site.result and site.result.text) for site in (said, true)
    ]
    return words[0] == words[1]


def _firsts(truth: Truth) -> dict[str, str]:
    found: dict[str, str] = {}
    for id_, agent in truth.agent_of.items():
        found.setdefault(agent, id_)
    return found


def total(kind: str, seeds: Iterable[int]) -> Score:
    found = Score()
    for seed in seeds:
        found.add(score(made_team(kind, seed)))
    return found


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "–"


def table(rows: Iterable[tuple[str, Score]]) -> Iterable[str]:
    names = (
        "kind", "cases", "calls", "calls by the right agent", "spawns", "precision", "recall", "the very tool",
        "returns", "precision", "recall",
    )  # fmt: skip
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for kind, one in rows:
        cells = (
            kind, f"{one.cases}", f"{one.calls:,}", _share(one.calls_right, one.calls), f"{one.spawns:,}",
            _share(one.spawns_right, one.spawns_said), _share(one.spawns_right, one.spawns),
            _share(one.tools_right, one.spawns), f"{one.returns:,}", _share(one.returns_right, one.returns_said),
            _share(one.returns_right, one.returns),
        )  # fmt: skip
        yield "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=25, help="of each kind; eight times as many mixed ones")
    parser.add_argument("--kind", choices=[*KINDS, MIXED], help="one kind only")
    parser.add_argument("--seed", type=int, default=0, help="where seeds begin")
    args = parser.parse_args()
    began = time.perf_counter()
    rows: list[tuple[str, Score]] = []
    for kind in [args.kind] if args.kind else [*KINDS, MIXED]:
        cases = args.cases * (8 if kind == MIXED else 1)
        rows.append((kind, total(kind, range(args.seed, args.seed + cases))))
    whole = Score()
    for _, one in rows:
        whole.add(one)
    print("\n".join(table([*rows, ("all", whole)])))
    print(f"\n{whole.cases} cases, {whole.calls:,} calls in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
