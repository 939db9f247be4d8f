"""What is said of jobs that ask for more than there is anywhere: the same words whoever runs them."""

from collections.abc import Sequence
from typing import NamedTuple

from joblens.model.errors import PlanError
from joblens.model.values.units import format_bytes, format_duration

_SHOWN = 20


class Lack(NamedTuple):
    """A job that could never start."""

    name: str
    what: str  # cpus, memory, gpus, time, nodes
    need: float
    have: float


def more_than_there_is(lacks: Sequence[Lack], hint: str = "") -> PlanError:
    lines = [_line(one) for one in lacks[:_SHOWN]]
    if len(lacks) > _SHOWN:
        lines.append(f"and {len(lacks) - _SHOWN} more")
    error = PlanError(
        "jobs ask for more than there is to give:\n  " + "\n  ".join(lines),
        hint=hint or _hint(lacks),
    )
    error.lacks = tuple(lacks)
    return error


def _hint(lacks: Sequence[Lack]) -> str:
    """Nodes cannot be offered: there are as many as there are."""
    flags = ", ".join(f"--{what}" for what in dict.fromkeys(one.what for one in lacks) if what != "nodes")
    if not flags:
        return "ask for fewer nodes in the file, or name a cluster that has as many"
    return f"ask for less in the file, or offer more than the machine seems to have with {flags}"


def _line(one: Lack) -> str:
    if one.what == "memory":
        need, have = format_bytes(int(one.need)), format_bytes(int(one.have))
        return f"{one.name}: needs {need} of memory, {have} are offered"
    if one.what == "time":
        return f"{one.name}: needs {format_duration(one.need)}, {format_duration(one.have)} are offered"
    what = {"cpus": "CPUs", "gpus": "GPUs"}.get(one.what, one.what)
    if one.need == 1:
        what = what.removesuffix("s")
    return f"{one.name}: needs {one.need:g} {what}, {one.have:g} {'is' if one.have == 1 else 'are'} offered"
