"""Capabilities of this machine, as `joblens doctor` shows them."""

from enum import StrEnum

from msgspec import Struct

SLOTS = "slots (map, workflows)"  # name of their row in the area accounting


class Way(StrEnum):
    """How jobs get their control groups."""

    SCOPE = "systemd-scope"  # below a scope that systemd makes for joblens
    OWN_GROUP = "own-group"  # below joblens' own group, or one above it
    INSIDE_JOB = "inside-job"  # joblens runs inside a joblens job: below the group of that job
    CONFIGURED = "configured"  # below limits.cgroup_parent
    WITHOUT_CONTROLLERS = "without-controllers"  # groups that count CPU time only
    PROCESS_TREE = "process-tree"  # no groups
    NONE = "none"  # jobs cannot start


class Capability(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`mechanism`: how it works, if available; `reason` and `fix`: why not, or only partly, and the remedy.
    `applies`: False for an alternative that this machine does not need.
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
