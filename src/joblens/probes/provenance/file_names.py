"""Names of files are bytes, and not all of them are text: how they are remembered, and found again."""

import os
import re

_ESCAPED = re.compile(r"\\x([89a-f][0-9a-f])")


def as_text(name: str) -> str:
    """Bytes that are no text become \\xff."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")


def remembered_name(name: str, cwd: str) -> str:
    """The name of the file that is remembered by this one; as it is where none is there."""
    if "\\x" not in name or os.path.lexists(os.path.join(cwd, name)):
        return name
    written = _ESCAPED.sub(lambda found: os.fsdecode(bytes.fromhex(found[1])), name)
    return written if os.path.lexists(os.path.join(cwd, written)) else name


def remembered_path(name: str, cwd: str) -> str:
    """Where that file is."""
    return os.path.join(cwd, remembered_name(name, cwd))
