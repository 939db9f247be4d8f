"""Advice in the words of sbatch, to be pasted."""

from joblens.analysis.sizing.rightsizing import Advice, GroupAdvice
from joblens.analysis.slurm.text import slurm_clock
from joblens.model.values.units import MIB


def changes_for_sbatch(found: GroupAdvice) -> list[Advice]:
    """CPUs of a job of several nodes are those of its tasks: how it is cut into tasks is not ours to say."""
    is_wide = (found.group.current.nodes or 1) > 1
    return [part for part in found.advice if part.is_change and not (is_wide and part.resource == "cpus")]


def sbatch_options(found: GroupAdvice) -> str:
    """Of what should change; '' when all fits as it is."""
    return " ".join(map(sbatch_option, changes_for_sbatch(found)))


def sbatch_option(part: Advice) -> str:
    if part.resource == "memory":
        return f"--mem={memory_amount(part.recommended)}"
    if part.resource == "runtime":
        return f"--time={slurm_clock(-(-part.recommended // 60) * 60)}"
    return f"--cpus-per-task={part.recommended:g}"


def sbatch_reason(part: Advice) -> str:
    more = ", rounded up to Slurm's whole minutes" if _is_rounded(part) else ""
    return f"{part.resource}: {part.reason}{more}"


def is_rounded_for_sbatch(found: GroupAdvice) -> bool:
    return any(map(_is_rounded, changes_for_sbatch(found)))


def _is_rounded(part: Advice) -> bool:
    return part.resource == "runtime" and part.recommended % 60 != 0


def memory_amount(size: float) -> str:
    """As sbatch reads it: 12G, 640M."""
    mib = max(1, -(-int(size) // MIB))
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"
