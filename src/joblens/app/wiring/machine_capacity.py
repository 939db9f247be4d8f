"""What a run is offered: what the machine has, or what was said instead."""

import os
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from joblens.engine.schedule.capacity import RunCapacity, unfit
from joblens.model.clusters.preview import Capacity, ClusterPreview
from joblens.model.errors import InputError
from joblens.model.runs.fitting import Lack, more_than_there_is
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import RunOptions
from joblens.plan.workflows.labelled_jobs import refuse_elsewhere
from joblens.plan.workflows.stages import Stage
from joblens.probes.cgroup.layout import read_layout
from joblens.probes.host.machine import usable_cpus, usable_gpus, usable_memory_bytes

_MIB, _GIB = 1 << 20, 1 << 30
_UNKNOWN_MEMORY = _GIB
_MOST_GPUS = 9999


def machine_offer(options: RunOptions) -> RunCapacity:
    layout = read_layout()
    return RunCapacity(
        cpus=options.cpus if options.cpus is not None else usable_cpus(layout),
        memory_bytes=options.memory_bytes
        if options.memory_bytes is not None
        else less_reserve(usable_memory_bytes(layout) or _UNKNOWN_MEMORY),
        gpus=options.gpus if options.gpus is not None else usable_gpus(),
        time_s=options.time_s,
        most_jobs=options.most_jobs,
    )


def machine_capacity(offer: RunCapacity) -> tuple[Capacity, ...]:
    return (
        Capacity(
            name=os.uname().nodename,
            cpus=offer.cpus,
            memory_bytes=offer.memory_bytes,
            gpus=len(offer.gpus) + offer.nameless_gpus,
            time_limit_s=offer.time_s,
        ),
    )


class MachineCapacity:
    """This machine, for a run that does not exist yet (app.engine_capacity)."""

    def __init__(self, plan: Plan, options: RunOptions) -> None:
        self._plan = plan
        self._labels = options.labels
        self._offer = machine_offer(options)

    def check(self, places: Collection[int]) -> None:
        refuse_elsewhere(self._plan, self._labels, places)
        check_fit(self._plan, self._offer, places)

    def offer(self) -> RunCapacity:
        return self._offer

    def preview(
        self, stages: Sequence[Stage], places: Collection[int], expected_s: Mapping[int, float]
    ) -> ClusterPreview:
        return ClusterPreview(engine="local", where="this machine", capacity=machine_capacity(self._offer))

    def close(self) -> None:
        pass


def without_names(offer: RunCapacity) -> RunCapacity:
    """Of those who carry jobs out elsewhere: they say which devices each gets."""
    return replace(offer, gpus=(), nameless_gpus=len(offer.gpus) + offer.nameless_gpus)


def less_reserve(total_bytes: int) -> int:
    """A part is left for the system and for joblens itself: a twentieth, but not less than 256 MiB where
    that is no large part of it, and not more than 4 GiB."""
    reserve = min(max(total_bytes // 20, 256 * _MIB), 4 * _GIB, total_bytes // 4)
    return total_bytes - reserve


def parse_gpus(text: str) -> tuple[str, ...]:
    """'2' offers the first two that are there, or 0 and 1; '0,2' or names offer just these."""
    words = [word.strip() for word in text.split(",")]
    if len(words) == 1 and words[0].isdecimal():
        count = gpu_count(words[0])
        known = usable_gpus()
        return known[:count] if count <= len(known) else tuple(map(str, range(count)))
    is_below_zero = any(word.startswith("-") for word in words)
    if not all(words) or is_below_zero or len(set(words)) != len(words):
        raise InputError(f"--gpus {text}: expected a number, or devices such as 0,2")
    return tuple(words)


def gpu_count(digits: str) -> int:
    """Raises InputError for more than any machine has."""
    if len(digits.lstrip("0")) > len(str(_MOST_GPUS)):
        raise InputError(f"--gpus {digits:.20}: too large", hint=f"at most {_MOST_GPUS}")
    return int(digits)


def check_fit(plan: Plan, offer: RunCapacity, places: Collection[int] | None) -> None:
    """Raises PlanError with every job that could never start."""
    lacking = [one for one in unfit(plan, offer) if places is None or one.index in places]
    if not lacking:
        return
    raise more_than_there_is(
        [Lack(plan.jobs[one.index].name, one.what, one.need, one.have) for one in lacking]
    )
