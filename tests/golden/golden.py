"""Comparing what is shown with the files beside this one.

After a wanted change: JOBLENS_UPDATE_GOLDEN=1 pytest tests/golden, then read the difference."""

import os
from pathlib import Path

# read at import: the fixture that gives every test its own environment takes JOBLENS_* away
UPDATE = bool(os.environ.get("JOBLENS_UPDATE_GOLDEN"))


def same_as_golden(name: str, lines: list[str]) -> None:
    same_text(f"{name}.txt", "\n".join(lines) + "\n")


def same_text(file_name: str, text: str) -> None:
    path = Path(__file__).with_name(file_name)
    if UPDATE:
        path.write_text(text)
    assert text == path.read_text()
