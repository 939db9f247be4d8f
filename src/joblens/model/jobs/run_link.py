"""What ties a record to the run it belongs to, and to the files it was started with."""

from msgspec import Struct


class RunLink(Struct, frozen=True, omit_defaults=True):
    """Which job of which run a record is an attempt of."""

    run_uuid: str
    index: int  # place in the plan; -1: a command of an action or a recovery script
    attempt: int = 1
    is_command: bool = False  # its run is this one command: people know it as a job, not as a workflow


class FileStamp(Struct, frozen=True, omit_defaults=True):
    """A file or a dataset as a job found or left it."""

    path: str
    size: int | None = None  # None: it was not there, or is a folder
    mtime_ns: int | None = None  # None: it was not there
    digest: str | None = None  # sha256 of the content, where it was read (before: 32 digits of blake2b)
    is_guess: bool = False  # the command names it, and nobody said that it is read
    files: int | None = None  # in a dataset, which is a directory; None: it is no dataset
    hash_mode: str = ""  # of a dataset: what its digest is made from
