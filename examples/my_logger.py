"""A logger of your own: where a run's figures go besides its folder. Here, the best step so far as one small file.

    baton train grpo --set 'train.loggers=["my_logger:Best"]' --set train.logger_settings.my_logger:Best.figure=entropy

It is made when the first figures come and called after each step. What it raises is said once and ends the logger, not
the run. A run that goes on makes it anew: `run.resumed_at` is the step it goes on after, and later steps come again.
"""

import json
from collections.abc import Mapping

from baton.learn.run.loggers import LoggedRun
from baton.testing import check_logger


class Best:
    """Keeps the step with the highest value of one figure."""

    def __init__(self, run: LoggedRun, *, figure: str = "return/mean", file: str = "best.json") -> None:
        self.figure = figure
        self.path = run.folder / file
        known = json.loads(self.path.read_text("utf-8")) if self.path.is_file() else None
        late = known is not None and run.resumed_at is not None and known["step"] > run.resumed_at
        self.best = None if known is None or late else float(known["value"])

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        value = scalars.get(self.figure)
        if value is not None and (self.best is None or value > self.best):
            self.best = value
            self.path.write_text(json.dumps({"step": step, "value": value}), "utf-8")

    def close(self) -> None:
        """The file is written already."""


if __name__ == "__main__":
    check_logger(Best)
    print("my_logger:Best is a logger that a recipe can name.")
