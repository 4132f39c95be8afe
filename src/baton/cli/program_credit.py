"""`baton credit SESSION --estimator message-replay -- COMMAND`: credit of what a program's agents said, by forks."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from baton.cli.credit import named_function, tell_credits, watching
from baton.cli.credit_lines import tell_of_the_bound, tell_of_the_cost
from baton.cli.printing import remark
from baton.cli.program_replay import as_run
from baton.cli.program_words import program_of, read_engine
from baton.compose.credit_traces import CreditWatch, Expected, credits_of
from baton.compose.waking import run_waking
from baton.credit.estimator import Estimator
from baton.errors import UsageError
from baton.serve.replay.find import find_session
from baton.serve.replay.masks import read_masks
from baton.serve.replay.program_forks import ProgramForks, program_runner
from baton.view.text import count

FORKING = ("message-replay", "spawn-replay")


def run_program_credit(
    args: argparse.Namespace, program: Sequence[str], estimator: Estimator, settings: dict[str, Any]
) -> int:
    """Credit of one session, with what its forks took."""
    if "runtime" in estimator.needs and estimator.name not in FORKING:
        raise UsageError(
            f"estimator {estimator.name} needs the runtime of a team. Of a program's session: {', '.join(FORKING)}."
        )
    if "runtime" not in estimator.needs:
        raise UsageError(f"estimator {estimator.name} runs nothing again; leave -- and the program out.")
    if len(args.paths) != 1:
        raise UsageError(f"of one session at a time; {len(args.paths)} were given.")
    args.program = list(program)
    command = program_of(args)
    assert command is not None
    _, session = find_session(args.paths[0], args.session)
    score = None if args.score is None else named_function("score", args.score)
    live = read_engine(args, session)
    try:
        with as_run(args, command) as (words, folder):
            runner = program_runner(words, cwd=folder or Path.cwd(), timeout_s=args.timeout)
            masks = read_masks(args.masks, args.mask, exact=args.exact)
            seed = str(session.about.get("seed", "0"))
            with ProgramForks(session, runner, live, seed=seed, masks=masks, score=score) as forks:
                if not any(reward.unit == "team" for reward in forks.trace.rewards):
                    raise UsageError(
                        f"session {session.name} has no reward. Let the program post one to "
                        "$BATON_SESSION_URL/reward, or type: --score module:function, a function of what it printed"
                    )
                watch = CreditWatch(running=watching, spending=partial(_spending, estimator))
                credits = run_waking(
                    credits_of(
                        estimator,
                        [forks.trace],
                        unit=args.unit,
                        group_by=args.group_by,
                        reward=args.reward,
                        settings=settings,
                        runner=forks,
                        watch=watch,
                    )
                )
    finally:
        asyncio.run(live.close())
    usage = forks.usage
    calls, tokens = usage.calls_run + usage.calls_reused, usage.tokens_run + usage.tokens_reused
    remark(
        f"baton credit: the program ran {count(forks.num_run, 'time')}; {usage.calls_reused:,} of {calls:,} calls "
        f"({usage.calls_reused / max(1, calls):.0%}) and {usage.tokens_reused:,} of {tokens:,} tokens "
        f"({usage.tokens_reused / max(1, tokens):.0%}) came from the recording; {forks.cost.tokens:,} tokens were asked"
    )
    tell_of_the_bound(credits)
    return tell_credits(args, estimator, [forks.trace], credits)


def _spending(estimator: Estimator, expected: Expected) -> None:
    tell_of_the_cost(estimator, expected)
    remark(
        "baton credit: each fork runs the program once more, with all that it does to files and over the network"
    )
