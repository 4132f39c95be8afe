"""Games of drawn sizes: the mean of their optima, what is read, round trips, and what cannot be drawn."""

from __future__ import annotations

from statistics import mean

import msgspec
import pytest

from baton.errors import UsageError
from baton.games.library import make_game
from baton.games.library.stopping_chain import StoppingChain
from baton.games.library.varied import Varied
from baton.games.solve import evaluate, solve
from baton.learn.recipe import load
from baton.tasks.catalog import make_task


def test_its_optimum_is_the_mean_of_those_that_are_drawn() -> None:
    game = make_game(
        "varied", {"game": "stopping-chain", "values": {"num_workers": [2, 5], "good": [0.5, 0.9]}}
    )
    every = [StoppingChain(num_workers=size, good=good) for size in (2, 5) for good in (0.5, 0.9)]
    assert solve(game).value == pytest.approx(mean(solve(each).value for each in every), abs=1e-12)
    assert game.decisions == ("stop",)
    assert make_game("varied", {"game": "parallel-pandora", "values": {"num_boxes": [1, 2]}}).roles


def test_it_reads_as_the_drawn_game_does() -> None:
    game = make_game("varied", {"values": {"num_workers": [2, 5]}, "settings": {"view": "ratio"}})
    assert game.text((1, (0, 0, 5))) == StoppingChain(num_workers=5, view="ratio").text((0, 0, 5))
    assert [branch.state for branch in game.start()] == [(0, (0, 0, 2)), (1, (0, 0, 5))]


def test_it_is_the_same_game_when_it_is_made_again_from_its_settings() -> None:
    game = make_game("varied", {"values": {"num_workers": [2, 3]}, "settings": {"gain": 0.3}})
    again = make_game("varied", msgspec.to_builtins(game))
    assert again == game
    assert hash(again) == hash(game)


def test_a_recipe_sets_the_sizes_and_the_view() -> None:
    changes = ["task.name=game:varied", "task.settings.values.num_workers=[2, 3, 4]"]
    part = load("stop", [*changes, "task.settings.settings.view=ratio"]).task
    game = make_task(part.name, **part.settings).game  # type: ignore[attr-defined]
    assert [each.num_workers for each in game.drawn] == [2, 3, 4]
    assert {each.view for each in game.drawn} == {"ratio"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"values": {}}, "at least one"),
        ({"values": {"num_workers": []}}, "at least one"),
        ({"values": {"num_workers": list(range(2000))}}, "2,000 games"),
        ({"settings": {"num_workers": 3}}, "drawn already"),
        ({"game": "varied"}, "game = 'varied'"),
        ({"game": "os:path"}, "game = 'os:path'"),
        ({"values": {"num_workers": [2, 31]}}, "0 to 30"),
        ({"values": {"workers": [2]}}, "workers"),
        ({"game": "gatekeeper", "values": {"num_tasks": [2]}}, "."),
    ],
)
def test_what_cannot_be_drawn_is_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make_game("varied", settings)


def test_the_ratio_is_the_same_word_at_any_size() -> None:
    def word(out: int, good: int) -> str:
        text = StoppingChain(num_workers=30, view="ratio").text((2, good, out))
        return text.split("returns: ")[1].split("\n")[0]

    assert [word(0, 3), word(2, 3), word(3, 3), word(5, 3), word(6, 3)] == [
        "none", "fewer", "as many", "more", "many more",
    ]  # fmt: skip
    assert word(1, 0) == "more"
    assert [word(20, 10), word(12, 10), word(10, 10)] == ["many more", "more", "as many"]


@pytest.mark.parametrize(("size", "most"), [(3, 1e-9), (6, 0.005), (12, 0.005), (30, 0.04)])
def test_play_that_reads_the_ratio_alone_is_near_the_optimum_at_any_size(size: int, most: float) -> None:
    """What result 20 counts on: the rule that is best at 3 workers, carried over."""
    game = StoppingChain(num_workers=size, view="ratio")
    waits = ("as many", "more", "many more")

    def policy(state: tuple[int, ...]) -> dict[str, float]:
        goes_on = any(f": {word}\n" in game.text(state) for word in waits)
        options = game.options(state)
        return {options[-1] if goes_on else options[0]: 1.0}

    optimum = solve(game).value
    assert optimum - evaluate(game, policy).value <= most * optimum
    assert isinstance(make_game("varied"), Varied)
