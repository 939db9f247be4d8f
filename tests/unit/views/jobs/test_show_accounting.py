"""The section "Ran on": how the job was measured and held to its limits, within the width of the terminal."""

from joblens.model.jobs.job import Attempt, Job, Owner, Record, Status
from joblens.views.jobs.show import render_show
from joblens.views.text.style import PLAIN

REASON = (
    "no systemd scope: the systemd manager of alice runs, and keeps its scopes, only while alice is logged in"
)


def _shown(attempt: Attempt) -> list[str]:
    job = Job(uuid="0a" * 16, argv=("true",), created_at_us=1, name="train")
    record = Record(job=job, attempt=attempt, status=Status.RUNNING, number=7)
    lines = render_show(record, [], now_us=2_000_000, width=80, paint=PLAIN)
    return lines[lines.index("Ran on") :]


def _attempt(reason: str = "", enforced_by: dict[str, str] | None = None) -> Attempt:
    return Attempt(
        number=1,
        started_at_us=1,
        owner=Owner("host", 1, 1, "boot"),
        accounting="process-tree",
        accounting_reason=reason,
        enforced_by=enforced_by or {},
    )


def test_a_long_reason_is_wrapped_below_its_beginning() -> None:
    lines = _shown(_attempt(REASON))
    start = next(number for number, line in enumerate(lines) if line.startswith("  accounting"))
    block = [lines[start], *(line for line in lines[start + 1 :] if line.startswith(" " * 19))]
    assert all(len(line) <= 80 for line in block)
    assert " ".join(line[19:] for line in block) == f"process-tree ({REASON})"


def test_limits_name_how_each_is_held() -> None:
    lines = _shown(_attempt(enforced_by={"memory": "watched by joblens", "cpus": "cgroup cpu.max"}))
    assert "  enforced         memory watched by joblens, cpus by cgroup cpu.max" in lines
