"""Files that have their content from the first moment."""

import errno
import os
from pathlib import Path

import pytest

from joblens.files.private import create_with


@pytest.fixture(params=["files without a name", "none"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On file systems that have files without a name, and on others."""
    if request.param == "none":
        real = os.open

        def without(name: str, flags: int, mode: int = 0o777) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), name)
            return real(name, flags, mode)

        monkeypatch.setattr(os, "open", without)
    return tmp_path / "spool" / "slot-1.slot"


def test_a_file_is_created_with_its_content_and_its_folder(path: Path) -> None:
    descriptor = create_with(str(path), b"whole")
    os.pwrite(descriptor, b"W", 0)
    os.close(descriptor)
    assert path.read_bytes() == b"Whole"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_that_is_there_stays(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"first")
    with pytest.raises(FileExistsError):
        create_with(str(path), b"second")
    assert path.read_bytes() == b"first"


def test_a_full_disk_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda _descriptor, data: len(data) - 1)
    with pytest.raises(OSError, match="No space left"):
        create_with(str(path), b"whole")
    assert list(path.parent.iterdir()) == []
