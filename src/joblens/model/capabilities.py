"""Capabilities of this machine, as `joblens doctor` shows them."""

from enum import StrEnum

from msgspec import Struct

SLOTS = "slots (map, workflows)"  # name of their row in the area accounting


class Way(StrEnum):
    """How jobs come to their control groups."""

    SCOPE = "systemd-scope"  # below a scope that systemd makes for joblens
    OWN_GROUP = "own-group"  # below the group joblens runs in, or one above it
    INSIDE_JOB = "inside-job"  # below the group of the joblens job that joblens runs in
    CONFIGURED = "configured"  # below limits.cgroup_parent
    WITHOUT_CONTROLLERS = "without-controllers"  # groups that count CPU time only
    PROCESS_TREE = "process-tree"  # no groups
    NONE = "none"  # jobs cannot start


class Capability(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`mechanism`: how it works, if available; `reason` and `fix`: why not or only partly, and what helps.

    One that does not apply is an alternative that this machine does not need: neither available nor missing.
    """

    area: str  # accounting, numbers, limits, ending, output, containers, storage, clusters, extras
    name: str
    available: bool
    mechanism: str = ""
    reason: str = ""
    fix: str = ""
    applies: bool = True
    way: Way | None = None  # in the area accounting, the mechanism for jobs

    @property
    def is_gap(self) -> bool:
        return self.applies and not self.available
