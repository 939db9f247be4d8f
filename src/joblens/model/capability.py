"""One thing joblens can or cannot do on this machine."""

from msgspec import Struct


class Capability(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`mechanism` says by what it is done when it is available; `reason` and `fix` why not and what would
    help when it is not, or is available in a lesser way. One that does not apply is an alternative this
    machine has no use for: neither there nor missing."""

    area: str  # accounting, numbers, limits, ending, output, containers, storage, clusters, extras
    name: str
    available: bool
    mechanism: str = ""
    reason: str = ""
    fix: str = ""
    applies: bool = True

    @property
    def is_gap(self) -> bool:
        return self.applies and not self.available
