"""What is told of a job's threads, memory and peers where not everything could be seen."""

from joblens.model.jobs.details import Details, MemoryDepth, ThreadTable, ThreadUse
from joblens.model.jobs.job import Job, Outcome, Record, Status, Usage
from joblens.model.jobs.sample import Sample
from joblens.views.jobs.labels import SectionContext
from joblens.views.jobs.resources import parts_known, render_part
from joblens.views.text.style import PLAIN

_JOB = Job(uuid="3f8a21b2-c4d5-4e6f-a7b8-c9d0e1f2a3b4", argv=("true",), created_at_us=1)
_SECOND = 1_000_000


def _look(details: Details, *, cpu_usec: int = 0, samples: tuple[Sample, ...] = ()) -> SectionContext:
    outcome = Outcome(
        status=Status.SUCCESS, ended_at_us=1, duration_s=1.0, usage=Usage(cpu_total_usec=cpu_usec)
    )
    record = Record(status=Status.RUNNING, job=_JOB)
    if cpu_usec:
        record = Record(status=Status.SUCCESS, job=_JOB, outcome=outcome)
    return SectionContext(record=record, samples=samples, details=details, width=100, paint=PLAIN)


def _threads(*, cpu_usec: int, unread: int = 0) -> Details:
    use = ThreadUse(pid=7, tid=7, process="p", name="p", cpu_usec=cpu_usec)
    table = ThreadTable(
        at_us=1, threads=(use,), seen=29, unread=unread, cpu_usec=cpu_usec, wait_usec=5000, migrations=3
    )
    return Details(threads=table)


def test_threads_that_were_not_all_seen_are_reported_with_what_the_job_used() -> None:
    lines = render_part("threads", _look(_threads(cpu_usec=600_000, unread=572), cpu_usec=19_200_000))
    text = "\n".join(lines)
    assert "Threads (29 of 601 sampled)" in text
    assert "≥600ms of the job's 19.2s" in text
    assert "≥5ms" in text
    assert "≥3 between CPUs" in text
    assert "3.1%" in text  # of all that the job used


def test_threads_are_offered_only_where_some_were_seen() -> None:
    assert parts_known(_threads(cpu_usec=1), ()) == ["threads"]
    assert parts_known(Details(threads=ThreadTable(at_us=1, threads=(), seen=0)), ()) == []


def test_time_after_the_last_look_makes_the_sum_a_lower_bound() -> None:
    text = "\n".join(render_part("threads", _look(_threads(cpu_usec=24 * _SECOND), cpu_usec=34 * _SECOND)))
    assert "Threads (29 sampled)" in text
    assert "≥24.0s of the job's 34.0s" in text


def test_threads_that_were_all_seen_are_reported_as_they_are() -> None:
    text = "\n".join(render_part("threads", _look(_threads(cpu_usec=2 * _SECOND), cpu_usec=2_004_000)))
    assert "Threads (29 sampled)" in text
    assert "≥" not in text
    assert "of the job's" not in text


def test_of_a_job_that_runs_the_last_sample_says_what_it_has_used() -> None:
    sample = Sample(at_us=1, elapsed_us=1, cpu_total_usec=4 * _SECOND)
    text = "\n".join(render_part("threads", _look(_threads(cpu_usec=_SECOND), samples=(sample,))))
    assert "≥1.0s of the job's 4.0s" in text


def test_parts_of_memory_that_are_unknown_for_one_reason_are_reported_together_and_in_words() -> None:
    unknown = {
        "anon_bytes": "no group",
        "page_cache_bytes": "no group",
        "numa": "no group",
        "pss_bytes": "not allowed",
    }
    lines = render_part("memory", _look(Details(memory=MemoryDepth(at_us=1, unknown=unknown))))
    assert "  unknown: anonymous, page cache, by node (no group)" in lines
    assert "  unknown: proportional (not allowed)" in lines


def test_a_young_jobs_peers_have_not_been_looked_at_yet() -> None:
    sample = Sample(at_us=1, elapsed_us=1, network_rx_bytes=5, network_tx_bytes=5)
    assert (
        render_part("network", _look(Details(), samples=(sample,)))[-1]
        == "  endpoints unknown: not sampled yet"
    )
