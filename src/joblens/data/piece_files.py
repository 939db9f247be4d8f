"""Files that a job makes for itself."""

import os
from typing import BinaryIO


def piece_path(folder: str, number: int, ending: str) -> str:
    return os.path.join(folder, f"piece_{number:06d}{ending}")


def open_private(path: str) -> BinaryIO:
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC
    return open(path, "wb", opener=lambda name, _: os.open(name, flags, 0o600))
