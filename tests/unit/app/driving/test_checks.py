import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from joblens.app.driving.checks import check_folders
from joblens.model.errors import InputError
from joblens.model.runs.run import RunOptions


@pytest.mark.parametrize(
    ("flags", "why"), [(os.ST_RDONLY, "Read-only file system"), (0, "Permission denied")]
)
def test_a_folder_for_output_that_cannot_be_made_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int, why: str
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flags))
    with pytest.raises(InputError) as refused:
        check_folders(RunOptions(cwd=str(tmp_path)))
    assert str(refused.value) == f"output directory output: cannot be created: {why}"
