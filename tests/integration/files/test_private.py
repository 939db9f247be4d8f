"""Files that have their content from the first moment."""

import os
from pathlib import Path

import pytest

from joblens.files.private import create_with


def test_a_process_that_is_killed_before_the_file_is_whole_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = os.fork()
    if not child:
        monkeypatch.setattr(os, "link", lambda *_arguments, **_options: os.kill(os.getpid(), 9))
        create_with(str(tmp_path / "spool" / "one"), b"whole")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    assert list((tmp_path / "spool").iterdir()) == []
