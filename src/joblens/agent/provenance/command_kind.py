"""By what commands are told apart when it is looked up what they run in."""

from typing import NamedTuple


class CommandKind(NamedTuple):
    """Commands that start the same files in the same folder."""

    cwd: str
    words: tuple[str, ...]  # as probes.program_files.starting_words has them
    search: str  # PATH
    environment: tuple[tuple[str, str], ...] | None = None  # None: that of this process
    is_one_of_many: bool = False  # nobody looks at what it starts
