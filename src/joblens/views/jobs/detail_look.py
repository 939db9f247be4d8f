"""What every section of a job's details is drawn with."""

from collections.abc import Sequence

from msgspec import Struct

from joblens.analysis.numbers.reasons import NOT_MEASURED
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Record
from joblens.model.jobs.probe_choice import DEFAULT_PROBES
from joblens.model.jobs.sample import Sample
from joblens.views.text.numbers import UNKNOWN, counted
from joblens.views.text.style import Palette, clean, pad, wrap
from joblens.views.text.table import Column, render_table

MOST_ROWS = 20
_LABEL = 16


class Look(Struct, frozen=True, kw_only=True):
    """Everything a section may draw on."""

    record: Record
    samples: Sequence[Sample]
    details: Details
    width: int
    paint: Palette


def heading(text: str, look: Look) -> str:
    return look.paint.paint(text, "bold")


def nothing(part: str, look: Look, *names: str, number: str = "") -> list[str]:
    """Why there is nothing to show. `names`: of details under which a reason may stand; `number`: of the
    job's usage that comes from the same place."""
    reasons = [look.details.unknown[name] for name in names if name in look.details.unknown]
    if look.record.outcome is not None and number in look.record.outcome.usage.unknown:
        reasons.append(look.record.outcome.usage.unknown[number])
    told = [reason for reason in reasons if reason != NOT_MEASURED]
    why = told[0] if told else _why_not_looked_at(part, look.record)
    return wrap(f"not known: {clean(why)}", look.width, "  ")


def _why_not_looked_at(part: str, record: Record) -> str:
    job = record.job
    chosen = DEFAULT_PROBES if job.probes is None else job.probes
    if part in chosen and job.monitor:
        return "not looked at yet" if record.outcome is None else "nothing of the kind is in its record"
    if not job.monitor:
        return "nothing was looked at while it ran"
    if job.attached:
        return f"not asked for; joblens attach … --probes +{part} looks at it"
    if not job.argv and job.container is None:
        return "not asked for, or nothing came with it: a program measured itself, or it was imported"
    return f"not asked for; joblens run --probes +{part} looks at it"


def pairs(known: Sequence[tuple[str, str]], look: Look) -> list[str]:
    return [
        f"  {look.paint.paint(pad(name, _LABEL), 'dim')} {value}"
        for name, value in known
        if value not in ("", UNKNOWN)
    ]


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], look: Look) -> list[str]:
    # A column nobody knows anything of would only take the room of the others.
    kept = [
        place
        for place, column in enumerate(columns)
        if not column.goes or any(row[place] not in ("", UNKNOWN) for row in rows)
    ]
    shown = [[row[place] for place in kept] for row in rows[:MOST_ROWS]]
    lines = render_table([columns[place] for place in kept], shown, look.width - 2, look.paint)
    return [f"  {line}" for line in lines]


def rest(seen: int, shown: int, noun: str, look: Look) -> list[str]:
    left = seen - shown
    return [look.paint.paint(f"  and {counted(left, f'more {noun}')}", "dim")] if left > 0 else []
