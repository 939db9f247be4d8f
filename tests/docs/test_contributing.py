"""CONTRIBUTING.md names packages, files and make targets that exist."""

import re

from tests.conftest import REPOSITORY

TEXT = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
TABLE = TEXT.partition("## Where to make a change")[2].partition("\n## ")[0]
ROOTS = (REPOSITORY, REPOSITORY / "src" / "joblens")


def test_every_path_it_names_exists() -> None:
    named = re.findall(r"`([a-z_]+(?:/[\w.]+)*/?)`", TABLE)
    assert len(named) > 15
    assert not [name for name in named if not any((root / name).exists() for root in ROOTS)]


def test_every_make_target_it_names_exists() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", TEXT, re.MULTILINE))
    assert len(targets) > 4
    assert not {name for name in targets if f"\n{name}:" not in makefile}
