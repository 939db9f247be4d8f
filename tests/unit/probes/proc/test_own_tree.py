"""Descendants of this process, from a /proc made of files."""

import os
from pathlib import Path

from joblens.probes.proc.own_tree import OwnTree


def test_a_long_list_of_children_is_read_to_its_end(tmp_path: Path) -> None:
    """The kernel hands it out in pieces, so one call of read is not enough."""
    task = tmp_path / "self" / "task" / str(os.getpid())
    task.mkdir(parents=True)
    (task / "children").write_text("".join(f"{pid} " for pid in range(100_000, 120_000)))
    tree = OwnTree(str(tmp_path))
    assert len(list(tree._children_of_us())) == 20_000
