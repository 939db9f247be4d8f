"""Pages that have a table of every key of a file, and examples of it."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

UPDATE = bool(os.environ.get("JOBLENS_UPDATE_DOCS"))
_BLOCK = re.compile(r"<!-- keys -->\n.*?<!-- end of keys -->\n", re.DOTALL)


def check_tables(page: Path, tables: Iterable[str]) -> None:
    """They stand in the page as they are made from the keys; or they do now, when that is asked for."""
    joined = "\n\n".join(tables)
    block = f"<!-- keys -->\n{joined}\n<!-- end of keys -->\n"
    if UPDATE:
        page.write_text(_BLOCK.sub(lambda _: block, page.read_text()))
    assert block in page.read_text()


def yaml_examples(page: Path) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
