"""ARCHITECTURE.md shows every package, and every file it names exists.

After a change of packages: JOBLENS_UPDATE_DOCS=1 pytest tests/docs, then read the difference."""

import ast
import os
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "ARCHITECTURE.md"
PACKAGE = REPOSITORY / "src" / "joblens"
# From the top room to the bottom one.
ROOMS = (
    *("cli", "web", "app", "agent", "data", "runners", "probes", "stores", "spec", "views"),
    *("engine", "plan", "analysis", "ports", "model", "files"),
)
UPDATE = bool(os.environ.get("JOBLENS_UPDATE_DOCS"))


def first_line(package: Path) -> str:
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    return text.split("\n")[0]


def tree() -> str:
    lines = []
    for room in ROOMS:
        lines.append(f"{room + '/':<18}{first_line(PACKAGE / room)}")
        packages = sorted(path.parent for path in (PACKAGE / room).glob("*/__init__.py"))
        lines += [f"  {path.name + '/':<16}{first_line(path)}" for path in packages]
    return "```\n" + "\n".join(lines) + "\n```\n"


def test_the_tree_has_a_line_for_every_package() -> None:
    block = f"<!-- tree -->\n{tree()}<!-- end of tree -->\n"
    text = PAGE.read_text()
    if UPDATE:
        text = re.sub(r"<!-- tree -->\n.*?<!-- end of tree -->\n", lambda _: block, text, flags=re.DOTALL)
        PAGE.write_text(text)
    assert block in text


def test_every_room_has_its_line() -> None:
    assert set(ROOMS) == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def test_every_package_has_a_short_first_line() -> None:
    packages = [path.parent for path in PACKAGE.rglob("__init__.py")]
    assert not [str(path) for path in packages if not 0 < len(first_line(path)) <= 95]


def test_files_that_are_named_exist() -> None:
    named = set(re.findall(rf"`((?:{'|'.join(ROOMS)})/[\w/]+(?:\.py)?)`", PAGE.read_text()))
    assert len(named) > 30
    assert not {name for name in named if not (PACKAGE / name).exists()}
