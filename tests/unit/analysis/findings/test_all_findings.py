from typing import Any

import pytest
from msgspec.structs import replace

from joblens.analysis.findings.job import findings_for
from joblens.model.jobs.job import (
    USAGE_NUMBERS,
    Code,
    ContainerJob,
    Finding,
    Record,
    Requirements,
    RunLink,
    Severity,
    Status,
    Usage,
)
from joblens.model.values.units import GIB, MIB
from tests.builders.records import a_job, a_record, a_sample

SECOND = 1_000_000
HELD = {"enforced_by": {"cpus": "cpu.max", "memory": "memory.max", "pids": "pids.max"}}


def asking(**requirements: Any) -> dict[str, Any]:
    return {"job": {"requirements": Requirements(**requirements)}, "attempt": HELD}


def found(record: Record, *samples: Any) -> dict[str, Finding]:
    return {finding.code: finding for finding in findings_for(record, samples)}


def failed(**outcome: Any) -> Record:
    return a_record(status=Status.FAILED, **outcome)


def test_a_job_that_is_fine_has_no_findings() -> None:
    fine = a_record(usage=Usage(cpu_total_usec=297 * SECOND, memory_peak_bytes=GIB))
    assert findings_for(fine, ()) == ()


def test_a_job_that_still_runs_has_no_findings() -> None:
    assert findings_for(Record(status=Status.RUNNING, job=a_job()), ()) == ()


# why it ended


def test_an_exit_code_is_reported_with_the_last_line_of_stderr() -> None:
    record = failed(exit_code=3, reason="exited", stderr_tail="Traceback …\nValueError: no mesh\n")
    finding = found(record)[Code.EXIT_CODE]
    assert finding.severity is Severity.PROBLEM
    assert "exit code 3" in finding.text
    assert "ValueError: no mesh" in finding.text
    assert finding.advice == "joblens logs f47ac10b --stderr"


@pytest.mark.parametrize(("stdout_bytes", "advice"), [(7, "joblens logs f47ac10b"), (0, "")])
def test_an_empty_stderr_is_not_advised(stdout_bytes: int, advice: str) -> None:
    record = failed(exit_code=3, reason="exited", stderr_bytes=0, stdout_bytes=stdout_bytes)
    finding = found(record)[Code.EXIT_CODE]
    assert finding.text.startswith("exit code 3")
    assert finding.advice == advice


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (126, "could not be executed"),
        (127, "not found"),
        (139, "signal 11, SIGSEGV"),
        (1, "exit code 1 after"),
    ],
)
def test_exit_codes_that_shells_give_a_meaning_are_explained(code: int, meaning: str) -> None:
    assert meaning in found(failed(exit_code=code, reason="exited"))[Code.EXIT_CODE].text


def test_a_signal_is_named() -> None:
    finding = found(failed(exit_code=139, signal=11, reason="signal"))[Code.SIGNAL]
    assert "signal 11 (SIGSEGV)" in finding.text
    assert "debugger" in finding.advice


def test_a_signal_without_a_name_is_reported_too() -> None:
    assert "signal 40" in found(failed(exit_code=168, signal=40, reason="signal"))[Code.SIGNAL].text


def test_a_timeout_says_what_is_known_and_what_to_try() -> None:
    record = a_record(
        status=Status.TIMEOUT,
        exit_code=124,
        signal=15,
        reason="timeout",
        duration_s=3600.0,
        **asking(timeout_s=3600.0),
    )
    finding = found(record)[Code.TIMED_OUT]
    assert "1h00m00s" in finding.text
    assert finding.advice == "it needs more than 1h00m00s: try --timeout 1h30m"  # nobody knows how much
    assert Code.SIGNAL not in found(record)


def test_out_of_memory_is_reported_with_the_limit_and_a_larger_one() -> None:
    record = failed(
        exit_code=137,
        signal=9,
        reason="out-of-memory",
        usage=Usage(oom_kills=1),
        **asking(memory_bytes=512 * MIB),
    )
    finding = found(record)[Code.OUT_OF_MEMORY]
    assert finding.text == "out of memory: killed by the kernel at its memory limit of 512.0 MiB"
    assert finding.advice == "--memory 768m"
    assert set(found(record)) == {Code.OUT_OF_MEMORY}


def test_a_kill_is_blamed_on_the_out_of_memory_killer_only_where_that_may_have_been() -> None:
    def advice(usage: Usage, attached: str = "") -> str:
        record = failed(exit_code=137, signal=9, reason="signal", usage=usage)
        return found(replace(record, job=replace(record.job, attached=attached)))[Code.SIGNAL].advice

    assert "check the kernel log" in advice(Usage())
    assert "check the kernel log" in advice(Usage(oom_kills=0, lower_bounds=("oom_kills",)))
    assert "nor the kernel's out-of-memory killer, perhaps by a user" in advice(Usage(oom_kills=0))
    assert "perhaps by the engine's kill or stop" in advice(Usage(oom_kills=0), attached="container web")


def test_out_of_memory_without_a_limit_is_the_machines_or_that_of_an_outer_job() -> None:
    record = failed(exit_code=137, signal=9, reason="out-of-memory", usage=Usage(oom_kills=1))
    finding = found(record)[Code.OUT_OF_MEMORY]
    assert "the machine or an enclosing limit ran out of memory" in finding.text
    assert "raise the limit of the enclosing job or unit" in finding.advice


def test_a_child_killed_for_lack_of_memory_is_reported_although_the_job_succeeded() -> None:
    assert Code.CHILD_OUT_OF_MEMORY in found(a_record(usage=Usage(oom_kills=2)))


def test_too_many_processes_are_reported_with_twice_the_limit() -> None:
    record = failed(exit_code=143, signal=15, reason="limit", **asking(pids=16))
    assert found(record)[Code.PIDS_LIMIT].advice == "--pids 32"


def test_forks_that_failed_are_reported_although_the_job_went_on() -> None:
    record = a_record(usage=Usage(pids_limit_events=4), **asking(pids=16))
    assert "4 times" in found(record)[Code.PIDS_LIMIT].text


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        (Status.CANCELLED, "cancelled", Code.CANCELLED),
        (Status.LOST, "lost", Code.LOST),
        (Status.ERROR, "not-started", Code.NOT_STARTED),
    ],
)
def test_other_ends_have_their_own_finding(status: Status, reason: str, code: str) -> None:
    assert set(found(a_record(status=status, reason=reason, exit_code=None, usage=Usage()))) == {code}


def test_what_outlived_the_main_process_is_counted() -> None:
    assert (
        found(a_record(leftovers=1))[Code.LEFTOVERS].text
        == "1 process outlived the main process and was killed"
    )
    assert "3 processes" in found(a_record(leftovers=3))[Code.LEFTOVERS].text


# what it waited for


def test_a_throttled_job_is_advised_one_more_cpu() -> None:
    usage = Usage(
        cpu_total_usec=600 * SECOND, cpu_throttled_usec=100 * SECOND, cpu_pressure_usec=300 * SECOND
    )
    findings = found(a_record(usage=usage, **asking(cpus=2.0)))
    assert findings[Code.CPU_THROTTLED].advice == "--cpus 3"
    assert Code.CPU_PRESSURE not in findings  # the same thing seen from the other side


@pytest.mark.parametrize(
    ("cpus", "threads", "advice"),
    [(0.5, 1, "--cpus 1"), (0.5, 8, "--cpus 2"), (0.5, None, "--cpus 2"), (2.0, 1, "--cpus 3")],
)
def test_a_throttled_job_is_advised_no_more_cpus_than_it_had_threads(
    cpus: float, threads: int | None, advice: str
) -> None:
    usage = Usage(cpu_total_usec=50 * SECOND, cpu_throttled_usec=40 * SECOND, threads_peak=threads)
    record = a_record(duration_s=100.0, usage=usage, **asking(cpus=cpus))
    assert found(record)[Code.CPU_THROTTLED].advice == advice


def test_a_little_throttling_is_not_worth_a_word() -> None:
    usage = Usage(cpu_total_usec=300 * SECOND, cpu_throttled_usec=SECOND)
    assert found(a_record(usage=usage, **asking(cpus=1.0))) == {}


@pytest.mark.parametrize(
    ("number", "code"),
    [
        ("cpu_pressure_usec", Code.CPU_PRESSURE),
        ("io_pressure_usec", Code.IO_PRESSURE),
        ("memory_pressure_usec", Code.MEMORY_PRESSURE),
    ],
)
def test_waiting_for_a_resource_is_reported_as_a_share_of_time(number: str, code: str) -> None:
    record = a_record(
        duration_s=100.0, usage=replace(Usage(cpu_total_usec=90 * SECOND), **{number: 40 * SECOND})
    )
    assert "40% of its time" in found(record)[code].text


@pytest.mark.parametrize(("threads", "is_others"), [(1, True), (4, True), (5, False), (None, False)])
def test_a_job_that_was_not_in_its_own_way_is_reported_that_others_were(
    threads: int | None, is_others: bool
) -> None:
    usage = Usage(cpu_total_usec=60 * SECOND, cpu_pressure_usec=40 * SECOND, threads_peak=threads)
    record = a_record(duration_s=100.0, usage=usage)
    assert record.attempt is not None
    finding = found(replace(record, attempt=replace(record.attempt, cpu_count=4)))[Code.CPU_PRESSURE]
    assert ("other programs" in finding.text) is is_others
    assert ("fewer threads" in finding.advice) is not is_others


@pytest.mark.parametrize(
    ("asked", "there", "words"),
    [
        (1, 0, "1 GPU (it has none)"),
        (4, 2, "4 GPUs (it has 2)"),
        (2, 2, ""),
        (1, None, ""),  # nobody has looked
    ],
)
def test_more_gpus_than_there_are_are_reported(asked: int, there: int | None, words: str) -> None:
    job = {"requirements": Requirements(gpus=asked)}
    result = found(a_record(job=job, attempt={"gpu_count": there})).get(Code.MORE_THAN_THERE_IS)
    assert (result.text if result else "") == (
        f"requested more than this machine has: {words}" if words else ""
    )


@pytest.mark.parametrize(
    ("cores", "host_percent", "others", "first_advice"),
    [
        (0.5, 95, True, "run fewer jobs"),  # it got a quarter of a machine that was full
        (0.5, 40, False, "run fewer jobs"),
        (0.5, None, False, "run fewer jobs"),
        (1.9, 97, False, "start fewer threads"),  # it filled the machine itself
        (1.2, 97, False, "run fewer jobs"),
    ],
)
def test_a_job_with_many_threads_is_blamed_only_when_they_fill_its_cpus(
    cores: float, host_percent: int | None, others: bool, first_advice: str
) -> None:
    usage = Usage(cpu_total_usec=round(100 * cores * SECOND), cpu_pressure_usec=70 * SECOND, threads_peak=4)
    record = a_record(duration_s=100.0, usage=usage, attempt={"cpu_count": 2})
    busy = None if host_percent is None else host_percent * 2 * SECOND
    total = None if host_percent is None else 200 * SECOND
    first = a_sample(0, host_cpu_busy_usec=0, host_cpu_total_usec=0)
    last = a_sample(100, host_cpu_busy_usec=busy, host_cpu_total_usec=total)
    finding = found(record, first, last)[Code.CPU_PRESSURE]
    assert ("other programs" in finding.text) is others
    assert finding.advice.startswith(first_advice)


def test_swapping_is_reported_with_its_size() -> None:
    record = a_record(usage=Usage(cpu_total_usec=300 * SECOND))
    assert "12.0 MiB" in found(record, a_sample(1, memory_swap_bytes=12 * MIB))[Code.SWAPPED].text


def test_many_pages_read_from_disk_are_reported() -> None:
    record = a_record(duration_s=10.0, usage=Usage(cpu_total_usec=9 * SECOND, faults_major=50_000))
    assert "50,000 times" in found(record)[Code.MAJOR_FAULTS].text


# what it asked for


def test_memory_close_to_the_limit_is_a_warning_with_a_larger_one() -> None:
    record = a_record(
        usage=Usage(cpu_total_usec=300 * SECOND, memory_peak_bytes=980 * MIB), **asking(memory_bytes=GIB)
    )
    finding = found(record)[Code.MEMORY_NEAR_LIMIT]
    assert finding.severity is Severity.WARNING
    assert finding.advice == "--memory 1152m"


@pytest.mark.parametrize(("peak_mib", "is_reported"), [(922, True), (921, False)])
def test_a_limit_in_force_that_nobody_asked_joblens_for_counts_too(peak_mib: int, is_reported: bool) -> None:
    record = a_record(usage=Usage(cpu_total_usec=297 * SECOND, memory_peak_bytes=peak_mib * MIB))
    findings = found(record, a_sample(0), a_sample(1, memory_limit_bytes=GIB))
    assert (Code.MEMORY_NEAR_LIMIT in findings) is is_reported
    if is_reported:
        assert "90% of the 1.0 GiB it may use" in findings[Code.MEMORY_NEAR_LIMIT].text


def test_a_limit_nobody_asked_for_is_no_reason_to_ask_for_less() -> None:
    record = a_record(usage=Usage(cpu_total_usec=297 * SECOND, memory_peak_bytes=MIB))
    assert found(record, a_sample(0, memory_limit_bytes=64 * GIB)) == {}


def test_memory_asked_for_and_not_used_is_reported_with_a_line_to_paste() -> None:
    record = a_record(
        usage=Usage(cpu_total_usec=300 * SECOND, memory_peak_bytes=500 * MIB), **asking(memory_bytes=8 * GIB)
    )
    assert found(record)[Code.MEMORY_UNUSED].advice == "--memory 576m"


def test_less_memory_is_never_advised_from_a_lower_bound() -> None:
    usage = Usage(
        cpu_total_usec=300 * SECOND, memory_peak_bytes=500 * MIB, lower_bounds=("memory_peak_bytes",)
    )
    assert Code.MEMORY_UNUSED not in found(a_record(usage=usage, **asking(memory_bytes=8 * GIB)))


@pytest.mark.parametrize(
    "status", [Status.CANCELLED, Status.TIMEOUT, Status.LOST, Status.ERROR, Status.FAILED]
)
def test_a_job_that_did_not_succeed_is_never_advised_to_ask_for_less(status: Status) -> None:
    wasteful = asking(memory_bytes=8 * GIB, cpus=8.0)
    for cpu_usec, result in ((99 * SECOND, Code.ONE_CORE_ONLY), (200 * SECOND, Code.CPUS_UNUSED)):
        usage = Usage(cpu_total_usec=cpu_usec, memory_peak_bytes=50 * MIB)
        completed = found(a_record(duration_s=100.0, usage=usage, **wasteful))
        cut_short = found(a_record(status=status, duration_s=100.0, usage=usage, **wasteful))
        assert {Code.MEMORY_UNUSED, result} <= set(completed)
        assert not {Code.MEMORY_UNUSED, Code.ONE_CORE_ONLY, Code.CPUS_UNUSED} & set(cut_short)


def test_cpus_that_were_never_busy_are_reported_with_how_many_were() -> None:
    record = a_record(duration_s=100.0, usage=Usage(cpu_total_usec=200 * SECOND), **asking(cpus=8.0))
    finding = found(record)[Code.CPUS_UNUSED]
    assert "requested 8 CPUs" in finding.text
    assert finding.advice == "--cpus 2"


def test_a_phase_that_used_all_cpus_keeps_them() -> None:
    samples = [
        a_sample(0, cpu_total_usec=0),
        a_sample(50, cpu_total_usec=150 * SECOND),
        a_sample(75, cpu_total_usec=350 * SECOND),  # 8 cores
        a_sample(100, cpu_total_usec=350 * SECOND),
    ]
    record = a_record(duration_s=100.0, usage=Usage(cpu_total_usec=350 * SECOND), **asking(cpus=8.0))
    assert found(record, *samples) == {}


def test_one_busy_core_of_many_is_one_thread() -> None:
    record = a_record(duration_s=100.0, usage=Usage(cpu_total_usec=99 * SECOND), **asking(cpus=4.0))
    assert set(found(record)) == {Code.ONE_CORE_ONLY}


def test_an_idle_job_waited_for_something() -> None:
    record = a_record(duration_s=100.0, usage=Usage(cpu_total_usec=SECOND))
    assert set(found(record)) == {Code.MOSTLY_WAITING}


@pytest.mark.parametrize(("gpu_share", "is_reported"), [(0.09, True), (0.1, False)])
def test_a_job_whose_work_is_on_a_gpu_does_not_wait(gpu_share: float, is_reported: bool) -> None:
    usage = Usage(cpu_total_usec=SECOND, gpu_busy_usec=round(gpu_share * 100 * SECOND))
    assert (Code.MOSTLY_WAITING in found(a_record(duration_s=100.0, usage=usage))) is is_reported


def test_an_idle_job_that_waited_for_the_disk_is_reported_only_that() -> None:
    usage = Usage(cpu_total_usec=SECOND, io_pressure_usec=90 * SECOND)
    assert set(found(a_record(duration_s=100.0, usage=usage))) == {Code.IO_PRESSURE}


def test_a_short_job_gets_no_advice_about_cpus() -> None:
    assert found(a_record(duration_s=1.0, usage=Usage(cpu_total_usec=1000), **asking(cpus=4.0))) == {}


def test_a_limit_the_machine_could_not_hold_is_reported() -> None:
    record = a_record(
        job={"requirements": Requirements(memory_bytes=GIB)},
        attempt={"enforced_by": {}},
        usage=Usage(cpu_total_usec=300 * SECOND),
    )
    assert "--memory" in found(record)[Code.LIMIT_NOT_ENFORCED].text


@pytest.mark.parametrize(
    ("cpus", "mechanism", "message"),
    [
        (0.5, "CPU affinity (1 whole CPU)", "--cpus 0.5, only 1 whole CPU"),
        (2.5, "CPU affinity (3 whole CPUs)", "--cpus 2.5, only 3 whole CPUs"),
        (2.0, "CPU affinity (2 whole CPUs)", ""),
        (0.5, "cgroup cpu.max", ""),
    ],
)
def test_a_part_of_a_cpu_that_became_a_whole_one_is_reported(
    cpus: float, mechanism: str, message: str
) -> None:
    record = a_record(
        job={"requirements": Requirements(cpus=cpus)},
        attempt={"enforced_by": {"cpus": mechanism}},
        usage=Usage(cpu_total_usec=600 * SECOND),
    )
    finding = found(record).get(Code.LIMIT_NOT_ENFORCED)
    assert message in finding.text if finding else not message


def test_asking_for_more_than_the_machine_has_is_reported() -> None:
    machine = {"enforced_by": {"memory": "memory.max"}, "cpu_count": 2, "memory_total_bytes": 4 * GIB}
    greedy = {"requirements": Requirements(cpus=1000.0, memory_bytes=64 * GIB)}
    finding = found(a_record(job=greedy, attempt=machine))[Code.MORE_THAN_THERE_IS]
    assert "1000 CPUs (it has 2), 64.0 GiB of memory (it has 4.0 GiB)" in finding.text
    all_of_it = {"requirements": Requirements(cpus=2.0, memory_bytes=4 * GIB)}
    assert Code.MORE_THAN_THERE_IS not in found(a_record(job=all_of_it, attempt=machine))


def test_asking_for_all_cpus_needs_no_limit() -> None:
    record = a_record(
        job={"requirements": Requirements(cpus=16.0)},
        attempt={"enforced_by": {}, "cpu_count": 16},
        usage=Usage(cpu_total_usec=5000 * SECOND),
    )
    assert found(record) == {}


# trust


@pytest.mark.parametrize(("peak_bytes", "is_reported"), [(2 * MIB, False), (500 * MIB, True)])
def test_memory_too_small_to_plan_by_is_not_worth_a_caveat(peak_bytes: int, is_reported: bool) -> None:
    usage = Usage(memory_peak_bytes=peak_bytes, lower_bounds=("memory_peak_bytes",))
    assert (Code.LOWER_BOUNDS in found(a_record(usage=usage))) is is_reported


def test_lower_bounds_are_reported_in_plain_words_and_once() -> None:
    usage = Usage(
        cpu_total_usec=300 * SECOND, lower_bounds=("io_call_reads", "io_call_writes", "cpu_total_usec")
    )
    text = found(a_record(usage=usage))[Code.LOWER_BOUNDS].text
    assert text.count("I/O calls") == 1
    assert "CPU time" in text


def test_what_nobody_can_do_anything_about_is_no_finding() -> None:
    usage = Usage(
        cpu_total_usec=300 * SECOND,
        lower_bounds=("cpu_migrations", "instructions", "cycles", "energy_package_uj", "gpu_busy_usec"),
    )
    assert Code.LOWER_BOUNDS not in found(a_record(usage=usage))
    of_container = a_record(
        job={"container": ContainerJob(engine="docker", image="alpine")},
        usage=Usage(cpu_total_usec=300 * SECOND, lower_bounds=("io_read_bytes", "io_call_writes")),
    )
    assert Code.LOWER_BOUNDS not in found(of_container)


def test_no_lower_bound_is_reported_by_the_name_of_its_field() -> None:
    usage = Usage(cpu_total_usec=300 * SECOND, memory_mean_bytes=GIB, lower_bounds=USAGE_NUMBERS)
    text = found(a_record(usage=usage))[Code.LOWER_BOUNDS].text
    assert "memory" in text
    assert "_" not in text


def test_a_lower_bound_of_a_group_is_reported_with_its_own_reason() -> None:
    usage = Usage(cpu_total_usec=300 * SECOND, lower_bounds=("cpu_total_usec", "network_rx_bytes"))
    finding = found(a_record(attempt={"accounting": "cgroup-v2"}, usage=usage))[Code.LOWER_BOUNDS]
    assert finding.text.endswith("control group was removed before the last reading: CPU time, network")
    assert "launcher" in finding.advice
    calls = Usage(cpu_total_usec=300 * SECOND, lower_bounds=("io_call_reads",))
    finding = found(a_record(attempt={"accounting": "cgroup-v2"}, usage=calls))[Code.LOWER_BOUNDS]
    assert "some processes may have been missed" in finding.text


def test_what_was_looked_at_from_outside_is_not_sent_to_the_doctor() -> None:
    usage = Usage(cpu_total_usec=300 * SECOND, lower_bounds=("cpu_total_usec",))
    finding = found(a_record(job={"attached": "process 812"}, usage=usage))[Code.LOWER_BOUNDS]
    assert "joblens attached to it" in finding.text
    assert "doctor" not in finding.advice


def test_overlapping_measurements_are_reported() -> None:
    assert Code.SHARED in found(a_record(usage=Usage(cpu_total_usec=300 * SECOND, shared=True)))


def test_the_gravest_finding_comes_first() -> None:
    usage = Usage(cpu_total_usec=SECOND, lower_bounds=("cpu_total_usec",))
    findings = findings_for(failed(exit_code=1, reason="exited", leftovers=2, usage=usage), ())
    severities = [finding.severity for finding in findings]
    assert severities == sorted(severities, key=[Severity.PROBLEM, Severity.WARNING, Severity.INFO].index)
    assert severities[0] is Severity.PROBLEM


def test_advice_for_a_job_of_a_workflow_is_in_the_words_of_its_file() -> None:
    asked = Requirements(memory_bytes=400 * MIB)
    alone = failed(reason="out-of-memory", job={"requirements": asked}, usage=Usage(oom_kills=1))
    advice = found(alone)[Code.OUT_OF_MEMORY].advice
    assert advice == "--memory 640m"
    of_a_run = replace(alone, job=replace(alone.job, run=RunLink("r", 0)))
    assert found(of_a_run)[Code.OUT_OF_MEMORY].advice == "memory: 640m"


def test_a_lost_job_of_a_run_comes_back_with_its_run() -> None:
    lost = a_record(status=Status.LOST)
    of_a_run = replace(lost, job=replace(lost.job, run=RunLink("12345678-0000", 0)))
    assert found(of_a_run)[Code.LOST].advice == "run it again: joblens resume 12345678"
