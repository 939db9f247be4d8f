"""Which kind of file system a path is on: some cannot share memory between hosts."""

import os

MOUNTINFO = "/proc/self/mountinfo"

# Write-ahead logging needs memory that all users of the file share; these may be used by several hosts.
NETWORK_TYPES = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "lustre", "gpfs", "ceph", "9p", "afs", "beegfs"),
        *("glusterfs", "ocfs2", "gfs2", "pvfs2", "orangefs", "coda", "virtiofs"),
    )
)


def network_type(path: str, mountinfo: str = MOUNTINFO) -> str | None:
    """The type when `path` (which exists) is on a network file system or FUSE, else None."""
    if mountinfo == MOUNTINFO and os.major(os.stat(path).st_dev) != 0:
        return None  # on a block device: no need to read the table of mounts
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:
            kind = mount_type(file.read(), os.path.realpath(path))
    except OSError:
        return None
    return kind if kind in NETWORK_TYPES or kind == "fuse" or kind.startswith("fuse.") else None


def mount_type(mountinfo: str, path: str) -> str:
    """The type of the mount that holds `path`; of several at one place the last covers the others."""
    best, found = -1, ""
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) < 8 or "-" not in fields:
            continue
        point = _unescaped(fields[4])
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= best:
            best, found = len(point), fields[fields.index("-") + 1]
    return found


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
