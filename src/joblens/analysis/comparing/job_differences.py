"""Differences between two jobs in command, environment, inputs and machine; the types of the comparison
and the noise threshold.
"""

import math
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from joblens.model.clusters.placement import CLUSTER_MARK
from joblens.model.jobs.details import Details, Provenance
from joblens.model.jobs.job import FileStamp, Record
from joblens.model.jobs.sample import Sample
from joblens.model.redaction.names import is_allowed_env, is_lasting_env
from joblens.model.values.units import MIB, format_bytes, format_duration

LEAST_PERCENT = 10  # relative, if earlier runs are unknown
# By unit. Smaller differences are ignored: without, and with, knowledge of earlier runs.
_LEAST = {"s": (0.1, 0.02), "bytes": (8 * MIB, MIB), "count": (10, 2), "J": (5, 1), "%": (10, 10)}
_LEAST_RUNS = 4  # minimum for a spread
_ENOUGH_FOR_MEDIANS = 8  # from this number on outliers are ignored
_MAD_TO_SIGMA = 1.4826
_SIGMAS = 3.0


class Noise(Struct, frozen=True):
    sigma: float  # relative
    runs: int

    @property
    def between_two(self) -> float:
        """Returns the largest usual change between two runs, relative to the smaller one."""
        return math.expm1(_SIGMAS * math.sqrt(2) * self.sigma)

    @classmethod
    def of_usual(cls, between_two: float, runs: int) -> "Noise":
        """Returns the noise with this largest usual change."""
        return cls(math.log1p(between_two) / (_SIGMAS * math.sqrt(2)), runs)


def change_percent(before: float | None, after: float | None) -> float | None:
    """Returns the change relative to the earlier value."""
    return None if before is None or after is None or before <= 0 else 100 * (after - before) / before


def has_changed(before: float | None, after: float | None, unit: str, noise: Noise | None = None) -> bool:
    """Returns whether a number has changed, for all comparisons: by more than earlier runs usually differ (10
    % if there are too few of them), and by a significant amount."""
    if before is None or after is None:
        return False
    gap = abs(after - before)
    if gap < _LEAST[unit][0 if noise is None else 1]:
        return False
    if noise is not None:
        return gap > noise.between_two * min(before, after)
    percent = change_percent(before, after)
    return percent is None or abs(round(percent)) >= LEAST_PERCENT


def is_too_small(percent: float | None, limit_percent: float | None) -> bool:
    """Returns whether an unchanged number counts as unchanged only because it is too small."""
    return percent is None or abs(round(percent)) >= (
        LEAST_PERCENT if limit_percent is None else limit_percent
    )


def noise_of(groups: Iterable[Sequence[float]]) -> Noise | None:
    """Returns the noise; None: too few values. `groups`: values of equal runs. Each value is compared with
    the median of its group, so that differences between groups are not noise."""
    deviations: list[float] = []
    freedom = runs = 0
    for values in groups:
        middle = statistics.median(values) if len(values) > 1 else 0.0
        if middle <= 0:
            continue
        deviations += [value / middle - 1 for value in values]
        freedom += len(values) - 1
        runs += len(values)
    if runs < _LEAST_RUNS:
        return None
    if runs >= _ENOUGH_FOR_MEDIANS:
        spread = _MAD_TO_SIGMA * statistics.median(abs(one) for one in deviations)
        return Noise(spread * math.sqrt(runs / freedom), runs)
    return Noise(math.sqrt(sum(one * one for one in deviations) / freedom), runs)


def noises(groups: Iterable[Sequence[Mapping[str, float | None]]]) -> dict[str, Noise]:
    """Returns the noise by number; `groups`: numbers of equal runs."""
    found: dict[str, Noise] = {}
    groups_of_numbers = [list(group) for group in groups]
    keys = {key for group in groups_of_numbers for numbers in group for key in numbers}
    for key in keys:
        values = [
            [value for numbers in group if (value := numbers.get(key)) is not None]
            for group in groups_of_numbers
        ]
        noise = noise_of(values)
        if noise is not None:
            found[key] = noise
    return found


# In the order of the report.
GROUPS = (
    "command",
    "parameters",
    "seeds",
    "requirements",
    "inputs",
    "code",
    "programs",
    "versions",
    "environment",
    "container",
    "machine",
    "placement",
    "outputs",
)


class Difference(Struct, frozen=True, kw_only=True):
    """One difference; None: absent."""

    group: str
    name: str
    before: str | None
    after: str | None


class NumberChange(Struct, frozen=True, kw_only=True):
    """`verdict`: up, down, same (within the usual range), unknown."""

    key: str
    title: str
    unit: str  # s, bytes, count, J
    before: float | None
    after: float | None
    verdict: str = "unknown"
    # usual difference of earlier runs in this direction; None: too few of them
    usual_percent: float | None = None
    earlier_runs: int = 0  # behind `usual_percent`

    @property
    def ratio(self) -> float | None:
        if self.before is None or self.after is None or self.before <= 0:
            return None
        return self.after / self.before

    @property
    def percent(self) -> float | None:
        return change_percent(self.before, self.after)

    @property
    def has_moved(self) -> bool:
        return self.verdict in ("up", "down")


class Cause(Struct, frozen=True, kw_only=True):
    """`kind`: certainty. measured: by counters; fits: a difference of the same size; possible: a difference
    that could be the cause."""

    kind: str
    text: str
    numbers: tuple[str, ...] = ()  # keys of the changed numbers


class JobDiff(Struct, frozen=True, kw_only=True):
    before: str
    after: str
    names: tuple[str, str]
    status: tuple[str, str]
    differences: tuple[Difference, ...]
    numbers: tuple[NumberChange, ...]
    causes: tuple[Cause, ...]
    same: tuple[str, ...]  # groups without a difference
    unknown: tuple[str, ...]  # groups without a record on one or both sides


_FROM_PROVENANCE = ("limits", "processor")  # parts of groups that need provenance
_SHORT = 12  # digits of a hash
_REQUIREMENTS = {"memory_bytes": "memory", "timeout_s": "timeout", "pids": "processes"}


class JobView(Struct, frozen=True, kw_only=True):
    """All facts about one job."""

    record: Record
    provenance: Provenance | None = None
    details: Details = Details()
    samples: tuple[Sample, ...] = ()


class Found(Struct, frozen=True):
    differences: tuple[Difference, ...]
    same: tuple[str, ...]
    unknown: tuple[str, ...]


Facts = Mapping[str, str] | None  # None: unknown


def differences(before: JobView, after: JobView) -> Found:
    found: list[Difference] = []
    same: list[str] = []
    unknown: list[str] = []
    both = before, after
    if before.provenance is None or after.provenance is None:  # nothing to compare with
        both = replace(before, provenance=None), replace(after, provenance=None)
        unknown += _FROM_PROVENANCE
    for group, facts in _FACTS.items():
        one, other = map(facts, both)
        if one is None or other is None:
            unknown.append(group)
            continue
        changed = list(_command(before, after) if group == "command" else _changed(group, one, other))
        found += changed
        if not changed and (one or other):
            same.append(group)
    return Found(tuple(found), tuple(same), tuple(unknown))


def _changed(group: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Difference]:
    for name in [*before, *(name for name in after if name not in before)]:
        if before.get(name) != after.get(name):
            yield Difference(group=group, name=name, before=before.get(name), after=after.get(name))


def _command(before: JobView, after: JobView) -> Iterator[Difference]:
    """Yields differing arguments if both commands have the same number, otherwise the whole lines."""
    one, other = _words(before.record), _words(after.record)
    if len(one) == len(other) and sum(map(str.__ne__, one, other)) <= max(2, len(one) // 2):
        for index, (word, later) in enumerate(zip(one, other, strict=True)):
            if word != later:
                is_value = index > 0 and one[index - 1].startswith("-") and not word.startswith("-")
                name = one[index - 1] if is_value else f"word {index + 1}"
                yield Difference(group="command", name=name, before=word, after=later)
    elif one != other:
        yield Difference(group="command", name="line", before=_line(before), after=_line(after))
    if before.record.job.cwd != after.record.job.cwd:
        yield Difference(
            group="command", name="directory", before=before.record.job.cwd, after=after.record.job.cwd
        )


def _words(record: Record) -> list[str]:
    job = record.job
    return job.argv[0].split() if job.is_shell and len(job.argv) == 1 else list(job.argv)


def _line(view: JobView) -> str:
    job = view.record.job
    return " ".join(job.argv) if job.is_shell else shlex.join(job.argv)


def _command_facts(view: JobView) -> Facts:
    return {"line": _line(view)}


def _parameters(view: JobView) -> Facts:
    return {name: _text(value) for name, value in view.record.job.params.items()}


def _seeds(view: JobView) -> Facts:
    return view.record.job.seeds


def _requirements(view: JobView) -> Facts:
    job = view.record.job
    asked = {
        _REQUIREMENTS.get(name, name): _amount(name, value)
        for name, value in to_builtins(job.requirements).items()
    }
    more = {"cpu_list": job.cpu_list, "gpu_devices": ", ".join(view.record.gpu_devices)}
    return {**asked, **{name: value for name, value in more.items() if value}}


def _amount(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return format_bytes(value)
    return format_duration(value) if name.endswith("_s") else f"{value:g}"


def _inputs(view: JobView) -> Facts:
    return file_facts(view.record.inputs)


def _outputs(view: JobView) -> Facts:
    outcome = view.record.outcome
    if outcome is None:
        return None
    made = {
        artifact.path: f"{format_bytes(artifact.bytes)} {artifact.sha256[:_SHORT]}".rstrip()
        for artifact in outcome.artifacts
    }
    return {**made, **file_facts(outcome.outputs)}


def file_facts(stamps: Iterable[FileStamp]) -> dict[str, str]:
    """Returns files by size and content; their times are not compared."""
    return {stamp.path: _file(stamp) for stamp in stamps}


def _file(stamp: FileStamp) -> str:
    if stamp.size is None:
        return "missing" if stamp.mtime_ns is None else "a directory"
    mark = stamp.digest[:_SHORT] if stamp.digest else ""
    files = "" if stamp.files is None else f"{stamp.files:,} files, "
    return f"{files}{format_bytes(stamp.size)} {mark}".rstrip()


def _code(view: JobView) -> Facts:
    if view.provenance is None:
        return None
    code = view.provenance.code
    if code is None:
        return {}
    changes = {True: code.changes_digest[:_SHORT] or "yes", False: "none", None: "not recorded"}
    facts = {
        "commit": code.commit[:_SHORT],
        "uncommitted changes": changes[code.is_dirty],
        "branch": code.branch,
        "repository": code.remote or code.root,
    }
    return {name: value for name, value in facts.items() if value}


def _programs(view: JobView) -> Facts:
    if view.provenance is None:
        return None
    return {
        program.path: " ".join(word for word in (program.version, program.sha256[:_SHORT]) if word)
        for program in view.provenance.programs
    }


def _versions(view: JobView) -> Facts:
    return None if view.provenance is None else view.provenance.versions


def _environment(view: JobView) -> Facts:
    recorded = {} if view.provenance is None else view.provenance.environment
    limits = {} if view.provenance is None else view.provenance.limits
    job = view.record.job
    added = {
        name: value
        for name, value in job.env.items()
        if name in job.env_given or is_lasting_env(name) or not is_allowed_env(name)
    }
    if view.provenance is None and not added:
        return None
    return {**recorded, **added, **{f"limit of {name}": value for name, value in limits.items()}}


def _container(view: JobView) -> Facts:
    asked = view.record.job.container
    if asked is None:
        return {}
    facts = {"image": asked.image, "network": asked.network, "volumes": ", ".join(asked.volumes)}
    running = view.details.container
    if running is not None:
        facts |= {"image id": running.image_id[: len("sha256:") + _SHORT], "engine": running.engine}
    return {name: value for name, value in facts.items() if value}


def _machine(view: JobView) -> Facts:
    attempt, provenance = view.record.attempt, view.provenance
    if attempt is None:
        return None
    facts = {
        "host": attempt.owner.host,
        "kernel": attempt.kernel,
        "CPUs": "" if attempt.cpu_count is None else str(attempt.cpu_count),
        "memory": "" if attempt.memory_total_bytes is None else format_bytes(attempt.memory_total_bytes),
    }
    if provenance is not None:
        facts |= {
            "host": provenance.host or attempt.owner.host,
            "processor": provenance.hardware.cpu_model,
            "GPUs": ", ".join(provenance.hardware.gpus),
            "system": provenance.system,
        }
    return {name: value for name, value in facts.items() if value}


def _placement(view: JobView) -> Facts:
    attempt, outcome = view.record.attempt, view.record.outcome
    placed = None if attempt is None else attempt.placement
    queue = view.record.job.queue
    if placed is None and not queue.startswith(CLUSTER_MARK):
        facts = {"queue": queue, "worker": outcome.worker if outcome is not None else ""}
    else:
        facts = {}  # on a cluster, both are unique to each run
    if placed is not None:
        facts |= {
            "engine": placed.engine,
            "cluster": placed.cluster,
            "partition": placed.partition,
            "qos": placed.qos,
            "nodes": ", ".join(placed.nodes),
            **{f"requested {name}": value for name, value in placed.asked.items()},
        }
    if attempt is not None:
        facts["measured by"] = attempt.accounting
    return {name: value for name, value in facts.items() if value}


def _text(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


_FACTS = {
    "command": _command_facts,
    "parameters": _parameters,
    "seeds": _seeds,
    "requirements": _requirements,
    "inputs": _inputs,
    "code": _code,
    "programs": _programs,
    "versions": _versions,
    "environment": _environment,
    "container": _container,
    "machine": _machine,
    "placement": _placement,
    "outputs": _outputs,
}


def facts_of(view: JobView) -> dict[str, Facts]:
    """Returns the facts of a job by group (GROUPS) and name; None: unknown."""
    return {group: facts(view) for group, facts in _FACTS.items()}
