"""Kernel files of any kind read thinly, and the cgroup files that have one form in every version."""

import os

# The kernel hands out seq files about one page at a time; a shorter answer is the last one.
LAST_CHUNK_BELOW = 4000


def read_bytes(path: str) -> bytes:
    """All of it. Half of what `open` and `read` take, which ask the kernel about the file first."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return pread_whole(descriptor)
    finally:
        os.close(descriptor)


def read_text(path: str) -> str | None:
    """None: there is no such file, or it may not be read."""
    try:
        return read_bytes(path).decode("ascii", "replace")
    except OSError:
        return None


def read_words(path: str) -> frozenset[str]:
    """A list such as cgroup.controllers; empty where there is no such file."""
    return frozenset((read_text(path) or "").split())


def pread_whole(fd: int) -> bytes:
    """All of a kept descriptor's file, from its beginning."""
    data = os.pread(fd, 65536, 0)
    if len(data) < LAST_CHUNK_BELOW:
        return data
    chunks, offset = [data], len(data)
    while chunk := os.pread(fd, 65536, offset):
        chunks.append(chunk)
        offset += len(chunk)
    return b"".join(chunks)


def subgroups(directory: str) -> list[str]:
    """Directories of the groups directly below this one."""
    try:
        # A group directory has two links and one more per sub-group: most have none, and need no listing.
        if os.stat(directory).st_nlink == 2:
            return []
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def list_pids(directory: str) -> list[int]:
    """Processes in the group and in every group below it; empty when it is gone."""
    try:
        pids = [int(word) for word in read_bytes(f"{directory}/cgroup.procs").split()]
    except OSError:
        pids = []
    for subgroup in subgroups(directory):
        pids += list_pids(subgroup)
    return pids
