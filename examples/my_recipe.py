"""A recipe of your own goes by a name once a package says where it is: a table, a struct, or the path of a TOML file.

The recipe itself is my_recipe.toml, beside this file. A package's pyproject.toml gives it its name:

    [project.entry-points."baton.recipe"]
    when-to-stop = "my_recipe:WHEN_TO_STOP"

Then `baton train when-to-stop` trains by it, `base = "when-to-stop"` stands on it, and
`baton.train("when-to-stop", task=my_task)` replaces parts of it.
"""

from pathlib import Path

from baton.testing import check_recipe

WHEN_TO_STOP = str(Path(__file__).with_name("my_recipe.toml"))

if __name__ == "__main__":
    recipe = check_recipe(WHEN_TO_STOP)
    print(f"{recipe.about} {recipe.train.steps} steps on {recipe.task.name}")
