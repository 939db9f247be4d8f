"""What people read, pinned: each screen is compared with the file of its name in this folder."""

import pytest
from msgspec import structs

from joblens.analysis.numbers.rates import NOT_MEASURED
from joblens.model.capabilities import Capability
from joblens.model.history import GroupStatistics, Statistics
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Finding, Record, Severity, Status
from joblens.views.jobs.history import render_history, render_job_details, render_job_history
from joblens.views.jobs.metrics import SampleTable, render_sample
from joblens.views.jobs.running import render_running, render_top
from joblens.views.jobs.show import render_parts, render_show
from joblens.views.jobs.stats import render_job_stats, render_stats
from joblens.views.jobs.summary import render_summary
from joblens.views.setup.doctor import render_doctor
from joblens.views.text.charts import points
from joblens.views.text.style import PLAIN, Palette, visible_width
from tests.builders import past_jobs
from tests.builders.distributions import distribution_of
from tests.builders.gpu_job import DETAILS, FACTS, gpu_samples
from tests.builders.past_jobs import MIB, POISSON, RUNNING, record_of, samples
from tests.builders.records import START_US
from tests.golden.golden import same_as_golden

NOW_US = START_US + 3600 * 1_000_000
ENDED = [
    record_of(past_jobs.poisson(), 3),
    record_of(past_jobs.lammps(), 2),
    record_of(past_jobs.cavity(), 1),
]
UNDER_WAY = record_of(past_jobs.running(), 4)


def with_devices(record: Record) -> Record:
    """With totals of everything that gpu_job's samples have."""
    assert record.outcome is not None
    usage = structs.replace(
        record.outcome.usage,
        network_rx_bytes=885 * MIB,
        network_tx_bytes=15 * MIB,
        network_rx_packets=619_500,
        network_tx_packets=236_000,
        gpu_memory_peak_bytes=2200 * MIB,
        gpu_busy_usec=42_300_000,
        gpu_energy_uj=1_340_000_000,
        energy_package_uj=1_239_000_000,
        energy_dram_uj=177_000_000,
        co2_mg=290,
        cpu_migrations=177,
        sources={
            **record.outcome.usage.sources,
            "network": "BPF program at the job's control group",
            "gpu": "NVML",
            "energy": "powercap, by CPU time",
        },
        unknown={**record.outcome.usage.unknown, "instructions": NOT_MEASURED, "cycles": NOT_MEASURED},
    )
    return structs.replace(record, outcome=structs.replace(record.outcome, usage=usage))


DEVICES_USED = with_devices(ENDED[0])
TWO = [UNDER_WAY, structs.replace(ENDED[0], outcome=None, status=Status.RUNNING)]
CURVES = {RUNNING: points(gpu_samples(5)), POISSON: points(samples(5))}


def group(*, success: int, failed: int, seconds: list[float]) -> GroupStatistics:
    return GroupStatistics(
        jobs=success + failed,
        by_status={"success": success, "failed": failed},
        duration_s=distribution_of(seconds),
        cpu_s=distribution_of(second * 0.9 for second in seconds),
        memory_peak_bytes=distribution_of(second * MIB for second in seconds),
    )


STATISTICS = Statistics(
    overall=group(success=12, failed=3, seconds=[float(second) for second in range(1, 16)]),
    by_tool={
        "fenicsx": group(success=7, failed=1, seconds=[100.0] * 8),
        "openfoam": group(success=2, failed=1, seconds=[300.0, 300.0, 301.55]),
    },
)


def test_history() -> None:
    same_as_golden("history", render_history([UNDER_WAY, *ENDED], now_us=NOW_US, width=80, paint=PLAIN))


def test_job_history() -> None:
    same_as_golden("job-history", render_job_history(ENDED))


def test_stats() -> None:
    same_as_golden("stats", render_stats(STATISTICS, width=80, paint=PLAIN))


def test_job_stats() -> None:
    same_as_golden("job-stats", render_job_stats(STATISTICS))


def test_job_details() -> None:
    same_as_golden("job-details", render_job_details(ENDED[0]))


def test_job_details_of_a_failed_job_end_with_its_error() -> None:
    same_as_golden("job-details-failed", render_job_details(ENDED[1]))


def test_show() -> None:
    same_as_golden("show", render_show(ENDED[0], samples(60), now_us=NOW_US, width=80, paint=PLAIN))


def test_show_of_a_failed_job() -> None:
    same_as_golden("show-failed", render_show(ENDED[1], [], now_us=NOW_US, width=80, paint=PLAIN))


def test_show_of_a_running_job() -> None:
    shown = render_show(UNDER_WAY, samples(5), now_us=START_US + 405_000_000, width=80, paint=PLAIN)
    same_as_golden("show-running", shown)


def test_metrics() -> None:
    first, second = samples(2)
    lines = [*render_sample(first, None, ENDED[0], PLAIN), "", *render_sample(second, first, ENDED[0], PLAIN)]
    same_as_golden("metrics", lines)


def test_metrics_of_a_job_with_gpus_network_and_energy() -> None:
    earlier, between, later = gpu_samples(3)
    lines = render_sample(later, between, ENDED[0], PLAIN, FACTS, gpu_before=earlier)
    same_as_golden("metrics-gpu", lines)


def test_metrics_as_a_table_have_a_line_a_sample() -> None:
    table = SampleTable(PLAIN, interval_s=1.0, has_gpu=True)
    same_as_golden("metrics-table", [line for sample in gpu_samples(6) for line in table.lines(sample)])


@pytest.mark.parametrize("part", ["threads", "network", "memory", "gpu"])
def test_a_part_of_show(part: str) -> None:
    shown = render_parts(ENDED[0], gpu_samples(90), DETAILS, [part], now_us=NOW_US, width=80, paint=PLAIN)
    same_as_golden(f"show-only-{part}", shown)


def test_parts_of_show_of_a_job_that_was_not_looked_at() -> None:
    unread = Details(unknown={"memory": "smaps_rollup may not be read"})
    parts = ["threads", "network", "memory", "gpu"]
    shown = render_parts(ENDED[1], [], unread, parts, now_us=NOW_US, width=80, paint=PLAIN)
    same_as_golden("show-only-unknown", shown)


def test_a_part_of_show_tells_why_the_numbers_are_not_known() -> None:
    outcome = ENDED[1].outcome
    assert outcome is not None
    usage = structs.replace(
        outcome.usage, unknown={"network_rx_bytes": "no cgroup v2", "gpu_memory_peak_bytes": "NVML hangs"}
    )
    record = structs.replace(ENDED[1], outcome=structs.replace(outcome, usage=usage))
    shown = render_parts(record, [], Details(), ["network", "gpu"], now_us=NOW_US, width=80, paint=PLAIN)
    assert "  unknown: no cgroup v2" in shown
    assert "  unknown: NVML hangs" in shown


def test_show_of_a_network_says_why_nobody_knows_with_whom() -> None:
    details = Details(unknown={"endpoints": "it was over"})
    shown = render_parts(
        DEVICES_USED, gpu_samples(60), details, ["network"], now_us=NOW_US, width=80, paint=PLAIN
    )
    assert shown[-1] == "  endpoints unknown: it was over"


def test_show_of_a_job_with_gpus_network_and_energy() -> None:
    shown = render_show(DEVICES_USED, gpu_samples(60), now_us=NOW_US, width=80, paint=PLAIN, details=DETAILS)
    same_as_golden("show-gpu", shown)


def test_summary_of_a_job_with_gpus_network_and_energy() -> None:
    same_as_golden("summary-gpu", render_summary(DEVICES_USED, color=False, width=80).splitlines())


def test_top_with_a_job_that_uses_gpus_and_network() -> None:
    now_us = START_US + 405_000_000
    same_as_golden("top-gpu", render_top(TWO, CURVES, now_us=now_us, width=80, paint=PLAIN))


def test_list() -> None:
    now_us = START_US + 405_000_000
    same_as_golden("list", render_running([UNDER_WAY], now_us=now_us, width=80, paint=PLAIN))


def test_list_of_jobs_on_a_queue_names_their_machines() -> None:
    now_us = START_US + 405_000_000
    queued = structs.replace(UNDER_WAY, job=structs.replace(UNDER_WAY.job, queue="default"))
    same_as_golden("list-queue", render_running([queued], now_us=now_us, width=80, paint=PLAIN))


def test_top() -> None:
    now_us = START_US + 405_000_000
    curves = {RUNNING: points(samples(5))}
    same_as_golden("top", render_top([UNDER_WAY], curves, now_us=now_us, width=80, paint=PLAIN))


def test_doctor() -> None:
    capabilities = [
        Capability(area="accounting", name="cgroup-hybrid", available=True, mechanism="a control group each"),
        Capability(
            area="accounting", name="cgroup-v1", available=False, applies=False, reason="not this machine"
        ),
        Capability(area="numbers", name="cpu", available=True, mechanism="cgroup v2 cpu.stat"),
        Capability(
            area="numbers", name="io", available=True, mechanism="/proc/PID/io", reason="blkio misses it"
        ),
        *(
            Capability(
                area="numbers", name=name, available=False, reason="blkio misses it", fix="boot with v2"
            )
            for name in ("io_ops", "io_devices")
        ),
        Capability(
            area="limits",
            name="memory",
            available=False,
            reason="no cgroup can be written",
            fix="run it as root",
        ),
    ]
    same_as_golden("doctor", render_doctor(capabilities, width=80, paint=PLAIN))


def test_doctor_tells_what_opens_several_gaps_once() -> None:
    gaps = [("oom_events", "not counted"), ("io_ops", "missed"), ("io_devices", "missed")]
    capabilities = [
        Capability(area="numbers", name=name, available=False, reason=why, fix="boot with v2 alone")
        for name, why in gaps
    ]
    text = "\n".join(render_doctor(capabilities, width=80, paint=PLAIN))
    assert text.count("boot with v2 alone") == 1
    assert text.count("→ as for oom events") == 1


def test_doctor_without_a_gap_says_so() -> None:
    capabilities = [
        Capability(area="accounting", name="cgroup-v2", available=True, mechanism="a control group each"),
        Capability(
            area="accounting", name="cgroup-v1", available=False, applies=False, reason="not this machine"
        ),
    ]
    last = render_doctor(capabilities, width=80, paint=PLAIN)[-2:]
    assert last == ["Jobs are measured by cgroup-v2.", "Everything is available."]


def test_summary_of_a_job_that_ran_out_of_memory() -> None:
    outcome = ENDED[0].outcome
    assert outcome is not None
    finding = Finding(
        "out-of-memory",
        Severity.PROBLEM,
        "The kernel ended it at its limit of 1 GiB.",
        "Give it --memory 1.5g.",
    )
    ended = structs.replace(
        outcome, reason="out-of-memory", signal=9, exit_code=137, status=Status.FAILED, findings=(finding,)
    )
    record = structs.replace(ENDED[0], status=Status.FAILED, outcome=ended)
    same_as_golden("summary", render_summary(record, color=False, width=80).splitlines())


SCREENS = [
    lambda width: render_history([UNDER_WAY, *ENDED], now_us=NOW_US, width=width, paint=Palette(is_on=True)),
    lambda width: render_stats(STATISTICS, width=width, paint=Palette(is_on=True)),
    lambda width: render_show(ENDED[0], samples(60), now_us=NOW_US, width=width, paint=Palette(is_on=True)),
    lambda width: render_top(
        [UNDER_WAY], {POISSON: points(samples(5))}, now_us=NOW_US, width=width, paint=PLAIN
    ),
    lambda width: render_summary(ENDED[0], color=True, width=width).splitlines(),
    lambda width: render_summary(DEVICES_USED, color=True, width=width).splitlines(),
    lambda width: render_top(TWO, CURVES, now_us=NOW_US, width=width, paint=PLAIN),
    lambda width: render_parts(
        DEVICES_USED,
        gpu_samples(90),
        DETAILS,
        ["threads", "network", "memory", "gpu"],
        now_us=NOW_US,
        width=width,
        paint=Palette(is_on=True),
    ),
]


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("screen", range(len(SCREENS)))
def test_no_screen_is_wider_than_the_terminal(screen: int, width: int) -> None:
    assert max(visible_width(line) for line in SCREENS[screen](width)) <= width


@pytest.mark.parametrize("width", [42, 50, 60])
def test_tables_leave_columns_out_on_a_narrow_terminal(width: int) -> None:
    history = render_history([UNDER_WAY, *ENDED], now_us=NOW_US, width=width, paint=PLAIN)
    stats = render_stats(STATISTICS, width=width, paint=PLAIN)[2:]  # after the headline, which is a sentence
    assert max(visible_width(line) for line in [*history, *stats]) <= width
    assert history[0].split()[:1] == ["ID"]
    assert "STATUS" in history[0]
