"""A real Prometheus scrapes a real exporter while jobs run: every query of a dashboard has an answer."""

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from joblens.model.jobs.details import Details, GpuFacts
from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Requirements, Status, Usage
from joblens.model.jobs.sample import GpuReading, Sample
from joblens.model.writes import DetailsTaken, JobEnded, JobQueued, JobStarted, SamplesTaken
from joblens.stores.sqlite import SqliteStore
from tests.conftest import REPOSITORY, RunJoblens, wait_until
from tests.prometheus_server import PrometheusServer, exporter, prometheus, scrape
from tests.servers import skip_without

DASHBOARD = REPOSITORY / "contrib" / "grafana" / "joblens.json"
RULES = REPOSITORY / "contrib" / "prometheus" / "alerts.yml"
UUID = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
OPTIONS = ("--listen", "127.0.0.1:0", "--job-ids", "--compat", "cgroup,ceems,cadvisor", "--cluster", "lab")
_OWNER = Owner("node7", 1, 1, "boot")

# Queries of Princeton's Single_Job_Stats dashboard and of the jobstats command.
_JOB = 'jobid="1",step="",task=""'
JOBSTATS = (
    *(
        f"irate(cgroup_cpu_{mode}_seconds{{{_JOB}}}[5m]) / cgroup_cpus{{{_JOB}}}"
        for mode in ("system", "total", "user")
    ),
    'cgroup_memory_cache_bytes{jobid="1",step="",task=""}',
    'cgroup_memory_rss_bytes{jobid="1",step="",task=""}',
    'cgroup_memory_total_bytes{jobid="1",step="",task=""}',
    'cgroup_memory_used_bytes{jobid="1",step="",task=""}',
    'irate(cgroup_memory_fail_count{jobid="1",step="",task=""}[1m])',
    'nvidia_gpu_duty_cycle{jobid="1"}',
    'nvidia_gpu_memory_used_bytes{jobid="1"}',
    'nvidia_gpu_power_usage_milliwatts{jobid="1"}',
    'nvidia_gpu_temperature_celsius{jobid="1"}',
    "max_over_time(cgroup_memory_total_bytes{cluster='lab',jobid='1',step='',task=''}[60s])",
    "cgroup_memory_rss_bytes{cluster='lab',jobid='1'} + cgroup_memory_shmem_bytes{cluster='lab',jobid='1'}",
    "max_over_time((nvidia_gpu_memory_total_bytes{cluster='lab'} and nvidia_gpu_jobId == 1)[60s:])",
    "avg_over_time((nvidia_gpu_duty_cycle{cluster='lab'} and nvidia_gpu_jobId == 1)[60s:])",
)
_UNIT = f'uuid="{UUID}"'
CEEMS = (
    *(f"ceems_compute_unit_memory_{kind}_bytes{{{_UNIT}}}" for kind in ("cache", "rss", "total", "used")),
    *(f"irate(ceems_compute_unit_cpu_{mode}_seconds_total{{{_UNIT}}}[1m])" for mode in ("user", "system")),
    *(
        f"irate(ceems_ebpf_{what}_total{{{_UNIT}}}[1m])"
        for what in ("ingress_bytes", "egress_bytes", "ingress_packets", "egress_packets")
    ),
    *(
        f"sum by (mountpoint) (irate(ceems_ebpf_{what}_total{{{_UNIT}}}[1m]))"
        for what in ("read_bytes", "write_bytes", "read_requests", "write_requests")
    ),
    *(
        f"irate(ceems_perf_{what}_total{{{_UNIT}}}[1m])"
        for what in ("context_switches", "cpu_migrations", "major_faults", "minor_faults")
    ),
    f"irate(ceems_perf_instructions_total{{{_UNIT}}}[1m]) / irate(ceems_perf_cpucycles_total{{{_UNIT}}}[1m])",
    f"ceems_compute_unit_cpus{{{_UNIT}}}",
    f"ceems_compute_unit_memory_fail_count{{{_UNIT}}}",
    f"ceems_compute_unit_cpu_psi_seconds{{{_UNIT}}}",
    f"ceems_compute_unit_memory_psi_seconds{{{_UNIT}}}",
    f'ceems_compute_unit_gpu_index_flag{{manager="joblens",hostname="node7",{_UNIT}}}',
)
_CONTAINER = 'id=~".+",name="train",image=~".+"'
CADVISOR = (
    *(
        f"sum by (name) (rate(container_{what}_total{{{_CONTAINER}}}[1m]))"
        for what in ("cpu_usage_seconds", "network_receive_bytes", "network_transmit_bytes", "fs_reads_bytes")
    ),
    *(
        f"rate(container_{what}_total{{{_CONTAINER}}}[1m])"
        for what in ("fs_writes_bytes", "cpu_cfs_throttled_seconds", "oom_events")
    ),
    *(
        f"container_{what}{{{_CONTAINER}}}"
        for what in (
            "memory_working_set_bytes",
            "memory_max_usage_bytes",
            "memory_rss",
            "processes",
            "threads",
        )
    ),
    f"container_memory_working_set_bytes{{{_CONTAINER}}} / container_spec_memory_limit_bytes",
    f"time() - container_start_time_seconds{{{_CONTAINER}}}",
)


def _sample(began_us: int, second: int) -> Sample:
    reading = GpuReading(
        utilization=9_000,
        memory_used_bytes=4 << 30,
        temperature_c=61,
        power_mw=300_000,
        energy_mj=second * 300_000,
        processes=1,
        job_processes=1,
        job_memory_bytes=3 << 30,
        job_utilization=8_500,
        job_busy_usec=second * 850_000,
    )
    counters = (
        *("cpu_throttled_usec", "cpu_some_usec", "memory_some_usec", "io_some_usec", "io_read_bytes"),
        *("io_write_bytes", "io_call_read_bytes", "io_call_write_bytes", "io_call_reads", "io_call_writes"),
        *("network_rx_bytes", "network_tx_bytes", "network_rx_packets", "network_tx_packets"),
        *("instructions", "cycles", "cpu_migrations", "context_switches", "faults_minor", "faults_major"),
        *("oom_kills", "memory_limit_events"),
    )
    known = Sample(
        at_us=began_us + second * 1_000_000,
        elapsed_us=second * 1_000_000,
        cpu_total_usec=second * 1_000_000,
        cpu_user_usec=second * 900_000,
        cpu_system_usec=second * 100_000,
        host_cpu_busy_usec=second * 2_000_000,
        host_energy_package_uj=second * 50_000_000,
        host_energy_dram_uj=second * 5_000_000,
        memory_current_bytes=900 << 20,
        memory_kernel_peak_bytes=950 << 20,
        memory_anon_bytes=700 << 20,
        memory_file_bytes=150 << 20,
        memory_shmem_bytes=10 << 20,
        memory_limit_bytes=1 << 30,
        processes=3,
        threads=12,
        gpus={"GPU-aa": reading},
    )
    return replace(known, **dict.fromkeys(counters, second * 1000))


@pytest.fixture
def gpu_node(store_path: Path) -> Iterator[None]:
    """A store to which a job with every number is written, second by second, and in which others end: this
    machine may have neither a GPU nor energy counters."""
    store_path.parent.mkdir(exist_ok=True)
    store = SqliteStore(str(store_path))
    began_us = time.time_ns() // 1000 - 5_000_000
    job = Job(
        uuid=UUID,
        argv=("python3", "train.py"),
        created_at_us=began_us,
        name="train",
        tool="python3",
        user="ada",
        tags=("team=a",),
        requirements=Requirements(cpus=2.0, memory_bytes=1 << 30, gpus=1),
    )
    attempt = Attempt(started_at_us=began_us, owner=_OWNER, cpu_count=8, memory_total_bytes=8 << 30)
    facts = GpuFacts(
        id="GPU-aa", vendor="nvidia", index=0, name="H200", uuid="GPU-aa", memory_total_bytes=141 << 30
    )
    store.apply([JobQueued(job), JobStarted(UUID, attempt), DetailsTaken(UUID, Details(gpus=(facts,)))])
    stop = threading.Event()

    def write() -> None:
        for second in range(600):
            short = f"00000000-0000-4000-8000-{second:012d}"
            outcome = Outcome(
                status=Status.SUCCESS,
                ended_at_us=time.time_ns() // 1000,
                duration_s=0.5,
                usage=Usage(cpu_user_usec=1000, energy_package_uj=10, oom_kills=1),
            )
            one = Job(uuid=short, argv=("true",), created_at_us=outcome.ended_at_us, name="short")
            own = Attempt(started_at_us=outcome.ended_at_us - 500_000, owner=_OWNER)
            store.apply(
                [
                    SamplesTaken(UUID, second, (_sample(began_us, second),)),
                    *(JobQueued(one), JobStarted(short, own), JobEnded(short, outcome)),
                ]
            )
            if stop.wait(1.0):
                return

    thread = threading.Thread(target=write)
    thread.start()
    yield
    stop.set()
    thread.join()
    store.close()


def dashboard_queries() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    written = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [one.replace("$__rate_interval", "20s").replace("$name", ".*") for one in written]


def unanswered(server: PrometheusServer, queries: tuple[str, ...] | list[str]) -> list[str]:
    return [query for query in queries if not server.ask(query)]


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.usefixtures("gpu_node")
def test_every_query_of_every_dashboard_returns_data() -> None:
    skip_without("prometheus", "promtool")
    queries = [*dashboard_queries(), *JOBSTATS, *CEEMS, *CADVISOR]
    assert len(queries) > 60
    with exporter(*OPTIONS) as url, prometheus(re.sub("^http://|/metrics$", "", url)) as server:
        missing: list[str] = []

        def is_all_there() -> bool:
            missing[:] = unanswered(server, queries)
            return not missing

        try:
            wait_until(is_all_there, timeout=90.0, what="data for every query")
        finally:
            assert not missing
        # Half of the machine's CPU time is the job's, so half of its 50 joules per second.
        energy = 'sum(joblens_energy_joules_total{name="train",domain="package"})'
        query = energy + ' / sum(joblens_cpu_seconds_total{name="train"}) > 0'
        (joules_per_cpu_second,) = wait_until(lambda: server.ask(query), what="energy of the job")
        assert float(joules_per_cpu_second["value"][1]) == pytest.approx(25)
        wait_until(lambda: server.ask("name:joblens_cpu_seconds:rate5m"), what="a recording rule")


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.needs("starlette")
def test_prometheus_scrapes_a_server_while_a_job_runs(
    joblens: RunJoblens, store_path: Path, tmp_path: Path
) -> None:
    from tests.integration.served import Served

    skip_without("prometheus", "promtool")
    uuid = joblens("submit", "--name", "busy", "--memory", "1g", "--", "sleep", "120", code=0).stdout.strip()
    options: dict[str, Any] = {"metrics_job_ids": True, "metrics_compat": "cgroup,ceems,cadvisor"}
    queries = (
        'joblens_jobs{name="busy",state="running"} == 1',
        f'joblens_job_info{{job_id="{uuid}"}} * on (job_id) joblens_job_memory_bytes',
        'cgroup_memory_rss_bytes{jobid="1",step="",task=""}',
        f'ceems_compute_unit_memory_used_bytes{{uuid="{uuid}"}}',
        'container_memory_working_set_bytes{name="busy"} < container_spec_memory_limit_bytes{name="busy"}',
    )
    ended = 'increase(joblens_jobs_ended_total{name="busy",status="cancelled"}[1m]) > 0'
    with Served(tmp_path, store=str(store_path), **options) as served:
        token = served.token(life_s=600)
        with prometheus(f"127.0.0.1:{served.port}", token) as server:
            wait_until(lambda: not unanswered(server, queries), timeout=60.0, what="data for every query")
            joblens("cancel", uuid, code=0)
            wait_until(lambda: server.ask(ended), timeout=30.0, what="the end of the job")
            assert not server.ask('joblens_jobs{name="busy",state="running"} == 1')


@pytest.mark.server
@pytest.mark.usefixtures("gpu_node")
def test_promtool_accepts_all_names_of_joblens() -> None:
    skip_without("promtool")
    with exporter("--listen", "127.0.0.1:0", "--job-ids") as url:
        wait_until(lambda: "joblens_job_gpu" in scrape(url), what="a sample")
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=scrape(url), capture_output=True, text=True, check=False
        )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.server
def test_promtool_accepts_the_rules() -> None:
    skip_without("promtool")
    done = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
