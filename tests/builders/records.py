"""Records and samples to test with."""

from typing import Any

from hypothesis import strategies as st
from msgspec import structs

from joblens.model.jobs.job import (
    USAGE_NUMBERS,
    Attempt,
    Finding,
    Job,
    Outcome,
    Owner,
    Record,
    Requirements,
    Severity,
    Status,
    Usage,
)
from joblens.model.jobs.sample import Sample

START_US = 1_760_524_200_000_000  # 2025-10-15T10:30:00Z
UUID = "f47ac10b-58cc-4372-a567-0e02b2c3d479"

counts = st.none() | st.integers(min_value=0, max_value=2**48)
words = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


def a_job(**changes: Any) -> Job:
    job = Job(
        uuid=UUID,
        argv=("python", "poisson.py", "--mesh", "64"),
        created_at_us=START_US - 5,
        external_id="my-task-123",
        name="poisson",
        tool="fenicsx",
        script="poisson.py",
        params={"mesh_size": 64},
        tags=("nightly", "grid=64"),
    )
    return structs.replace(job, **changes)


def an_attempt(**changes: Any) -> Attempt:
    attempt = Attempt(
        started_at_us=START_US,
        owner=Owner(host="node7", pid=0, start_ticks=0, boot_id=""),
        accounting="cgroup-v2",
        enforced_by={"memory": "cgroup memory.max"},
        kernel="6.18.0",
        cpu_count=16,
        memory_total_bytes=64 * 1024**3,
    )
    return structs.replace(attempt, **changes)


def an_outcome(**changes: Any) -> Outcome:
    outcome = Outcome(
        status=Status.SUCCESS,
        ended_at_us=START_US + 330_123_456,
        duration_s=330.123456,
        exit_code=0,
        reason="exited",
        usage=Usage(
            cpu_user_usec=285_450_000,
            cpu_system_usec=12_340_000,
            cpu_total_usec=297_790_000,
            memory_peak_bytes=2048 * 1024**2,
            sources={"cpu": "cgroup cpu.stat"},
        ),
        samples=331,
        sampling_interval_s=1.0,
    )
    return structs.replace(outcome, **changes)


def a_record(*, job: Any = None, attempt: Any = None, **outcome: Any) -> Record:
    ended = an_outcome(**outcome)
    return Record(
        number=12,
        status=ended.status,
        job=a_job(**(job or {})),
        attempt=an_attempt(**(attempt or {})),
        outcome=ended,
    )


def a_sample(seconds: float = 0.0, **fields: Any) -> Sample:
    micros = round(seconds * 1_000_000)
    return Sample(at_us=START_US + micros, elapsed_us=micros, **fields)


_usages = st.builds(
    Usage,
    **dict.fromkeys(USAGE_NUMBERS, counts),
    sources=st.dictionaries(words, words, max_size=2),
    unknown=st.dictionaries(words, words, max_size=2),
    lower_bounds=st.lists(words, max_size=2).map(tuple),
    estimates=st.lists(words, max_size=2).map(tuple),
    memory_peak_basis=words,
    shared=st.booleans(),
)
_outcomes = st.builds(
    Outcome,
    status=st.sampled_from([status for status in Status if status.is_final]),
    ended_at_us=st.integers(min_value=0, max_value=4_000_000_000_000_000),
    duration_s=st.floats(min_value=0, max_value=1e7),
    exit_code=st.none() | st.integers(min_value=0, max_value=255),
    signal=st.none() | st.integers(min_value=1, max_value=64),
    reason=words,
    error=st.none() | words,
    has_result=st.booleans(),
    usage=_usages,
    profile=st.none() | st.just({"cpu": {"mean_percent": 1.5}}),
    findings=st.lists(st.builds(Finding, words, st.sampled_from(Severity), words, words), max_size=2).map(
        tuple
    ),
    samples=st.integers(min_value=0, max_value=1000),
    sampling_interval_s=st.none() | st.floats(min_value=0.05, max_value=60),
    leftovers=st.integers(min_value=0, max_value=9),
    stdout_bytes=counts,
    stderr_bytes=counts,
    stderr_tail=words,
)
_jobs = st.builds(
    Job,
    uuid=st.just(UUID),
    argv=st.lists(words, max_size=4).map(tuple),
    created_at_us=st.integers(min_value=0, max_value=4_000_000_000_000_000),
    external_id=st.none() | words.filter(bool),
    name=words,
    tool=words,
    script=words,
    params=st.dictionaries(words, st.none() | st.integers(-(2**53), 2**53) | words, max_size=3),
    tags=st.lists(words, max_size=2).map(tuple),
    is_shell=st.booleans(),
    cwd=words,
    env=st.dictionaries(words, words, max_size=2),
    requirements=st.builds(Requirements, cpus=st.none() | st.floats(0.1, 64), memory_bytes=counts),
    user=words,
)
_attempts = st.builds(
    Attempt,
    number=st.integers(1, 9),
    started_at_us=st.integers(min_value=0, max_value=4_000_000_000_000_000),
    owner=st.builds(Owner, host=words, pid=st.just(0), start_ticks=st.just(0), boot_id=st.just("")),
    accounting=st.sampled_from(["cgroup-v2", "cgroup-hybrid", "process-tree"]),
    accounting_reason=st.sampled_from(["", "no systemd manager runs for this user"]),
    enforced_by=st.dictionaries(words, words, max_size=2),
    logs_dir=words,
    kernel=words,
    cpu_count=counts,
    memory_total_bytes=counts,
)


@st.composite
def ended_records(draw: st.DrawFn) -> Record:
    outcome = draw(_outcomes)
    return Record(
        number=draw(counts), status=outcome.status, job=draw(_jobs), attempt=draw(_attempts), outcome=outcome
    )
