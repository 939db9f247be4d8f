"""Metrics under the names of other exporters, so that their dashboards show jobs of joblens.
cgroup: cgroup_exporter and nvidia_gpu_exporter of Princeton's Jobstats. ceems: CEEMS. cadvisor: cAdvisor.
Names, labels and kinds are copied, even if they break Prometheus' naming rules.
"""

from collections.abc import Callable, Iterable

from joblens.model.jobs.job import Placement, Record, Status
from joblens.model.jobs.sample import Sample
from joblens.views.prometheus.exposition import COUNTER, GAUGE, Families, label_value, labels
from joblens.views.prometheus.own_families import RunningJob

CGROUP, CEEMS, CADVISOR = "cgroup", "ceems", "cadvisor"
COMPAT = (CGROUP, CEEMS, CADVISOR)

_USEC = 1e6
_HELP = "See the documentation of the exporter with this name."
_Rows = tuple[tuple[str, str, float, Callable[[Sample], int | None]], ...]  # name, kind, divisor, value


def add_compat(families: Families, jobs: Iterable[RunningJob], names: Iterable[str], cluster: str) -> None:
    """Adds the families of these exporters for running jobs with a sample."""
    add = {CGROUP: _add_cgroup, CEEMS: _add_ceems, CADVISOR: _add_cadvisor}
    chosen = [add[name] for name in COMPAT if name in set(names)]
    for job in jobs:
        if job.record.status is Status.RUNNING and job.sample is not None:
            for add_one in chosen:
                add_one(families, job, job.sample, cluster)


def _memory_limit(job: RunningJob, sample: Sample) -> int | None:
    """Returns the limit in force, otherwise the request, otherwise the machine's memory."""
    attempt = job.record.attempt
    return (
        sample.memory_limit_bytes
        or job.record.job.requirements.memory_bytes
        or (attempt.memory_total_bytes if attempt is not None else None)
    )


def _cpus(record: Record) -> float | None:
    return record.job.requirements.cpus or (record.attempt.cpu_count if record.attempt is not None else None)


def _own_slurm_job(record: Record) -> Placement | None:
    placement = record.attempt.placement if record.attempt is not None else None
    if placement is None or placement.engine != "slurm" or placement.is_allocation or not placement.job_id:
        return None
    return placement


def job_id(record: Record) -> str:
    """Returns Slurm's id if the job has its own Slurm job, otherwise the number of joblens."""
    placement = _own_slurm_job(record)
    if placement is not None:
        return placement.job_id
    return str(record.number) if record.number is not None else record.job.uuid


def _group_of(record: Record) -> str:
    """Returns the path of its control group below the mount, or a path made of its id."""
    groups = record.attempt.groups if record.attempt is not None else {}
    path = next(iter(groups.values()), "")
    return path.removeprefix("/sys/fs/cgroup") or f"/joblens/{record.job.uuid}"


def _add_rows(families: Families, rows: _Rows, label: str, sample: Sample) -> None:
    for name, kind, divisor, number in rows:
        value = number(sample)
        if value is not None:
            make = families.counter if kind == COUNTER else families.gauge
            make(name, _HELP).add(label, value / divisor if divisor != 1 else value)


# ---- Jobstats ----------------------------------------------------------------------------------------

_CGROUP: _Rows = (
    ("cgroup_cpu_user_seconds", GAUGE, _USEC, lambda s: s.cpu_user_usec),
    ("cgroup_cpu_system_seconds", GAUGE, _USEC, lambda s: s.cpu_system_usec),
    ("cgroup_cpu_total_seconds", GAUGE, _USEC, lambda s: s.cpu_total_usec),
    ("cgroup_memory_rss_bytes", GAUGE, 1, lambda s: s.memory_anon_bytes),
    ("cgroup_memory_cache_bytes", GAUGE, 1, lambda s: s.memory_file_bytes),
    ("cgroup_memory_used_bytes", GAUGE, 1, lambda s: s.memory_current_bytes),
    ("cgroup_memory_shmem_bytes", GAUGE, 1, lambda s: s.memory_shmem_bytes),
    ("cgroup_memory_fail_count", GAUGE, 1, lambda s: s.memory_limit_events),
)


def _add_cgroup(families: Families, job: RunningJob, sample: Sample, cluster: str) -> None:
    record = job.record
    ident = label_value(job_id(record))
    label = (
        f'jobid="{ident}",step="",task="",cluster="{label_value(cluster)}",'
        f'cgroup="{label_value(_group_of(record))}"'
    )
    _add_rows(families, _CGROUP, label, sample)
    families.gauge("cgroup_cpus", _HELP).add(label, _cpus(record))
    families.gauge("cgroup_memory_total_bytes", _HELP).add(label, _memory_limit(job, sample))
    _add_nvidia(families, job, ident, cluster)


def _add_nvidia(families: Families, job: RunningJob, ident: str, cluster: str) -> None:
    """Adds numbers of the whole device, as the GPU exporter does, while the job uses it."""
    readings = (job.gpu_sample.gpus if job.gpu_sample is not None else None) or {}
    for facts in job.gpus:
        reading = readings.get(facts.id)
        if reading is None or facts.vendor != "nvidia":
            continue
        label = labels(
            {
                "minor_number": str(facts.index),
                "uuid": facts.uuid,
                "name": facts.name,
                "jobid": ident,
                "cluster": cluster,
            }
        )
        used = reading.utilization
        values = {
            "nvidia_gpu_duty_cycle": used / 100 if used is not None else None,
            "nvidia_gpu_memory_used_bytes": reading.memory_used_bytes,
            "nvidia_gpu_memory_total_bytes": facts.memory_total_bytes,
            "nvidia_gpu_temperature_celsius": reading.temperature_c,
            "nvidia_gpu_power_usage_milliwatts": reading.power_mw,
            "nvidia_gpu_jobId": int(ident) if ident.isdecimal() else None,
        }
        for name, value in values.items():
            families.gauge(name, _HELP).add(label, value)


# ---- CEEMS -------------------------------------------------------------------------------------------

_CEEMS: _Rows = (
    ("ceems_compute_unit_cpu_user_seconds_total", COUNTER, _USEC, lambda s: s.cpu_user_usec),
    ("ceems_compute_unit_cpu_system_seconds_total", COUNTER, _USEC, lambda s: s.cpu_system_usec),
    ("ceems_compute_unit_memory_rss_bytes", GAUGE, 1, lambda s: s.memory_anon_bytes),
    ("ceems_compute_unit_memory_used_bytes", GAUGE, 1, lambda s: s.memory_current_bytes),
    ("ceems_compute_unit_memory_cache_bytes", GAUGE, 1, lambda s: s.memory_file_bytes),
    ("ceems_compute_unit_memory_fail_count", GAUGE, 1, lambda s: s.memory_limit_events),
    ("ceems_compute_unit_cpu_psi_seconds", GAUGE, _USEC, lambda s: s.cpu_some_usec),
    ("ceems_compute_unit_memory_psi_seconds", GAUGE, _USEC, lambda s: s.memory_some_usec),
    ("ceems_ebpf_ingress_bytes_total", COUNTER, 1, lambda s: s.network_rx_bytes),
    ("ceems_ebpf_egress_bytes_total", COUNTER, 1, lambda s: s.network_tx_bytes),
    ("ceems_ebpf_ingress_packets_total", COUNTER, 1, lambda s: s.network_rx_packets),
    ("ceems_ebpf_egress_packets_total", COUNTER, 1, lambda s: s.network_tx_packets),
    ("ceems_ebpf_read_bytes_total", COUNTER, 1, lambda s: s.io_call_read_bytes),
    ("ceems_ebpf_write_bytes_total", COUNTER, 1, lambda s: s.io_call_write_bytes),
    ("ceems_ebpf_read_requests_total", COUNTER, 1, lambda s: s.io_call_reads),
    ("ceems_ebpf_write_requests_total", COUNTER, 1, lambda s: s.io_call_writes),
    ("ceems_perf_cpucycles_total", COUNTER, 1, lambda s: s.cycles),
    ("ceems_perf_instructions_total", COUNTER, 1, lambda s: s.instructions),
    ("ceems_perf_context_switches_total", COUNTER, 1, lambda s: s.context_switches),
    ("ceems_perf_cpu_migrations_total", COUNTER, 1, lambda s: s.cpu_migrations),
    ("ceems_perf_major_faults_total", COUNTER, 1, lambda s: s.faults_major),
    ("ceems_perf_minor_faults_total", COUNTER, 1, lambda s: s.faults_minor),
)


def _add_ceems(families: Families, job: RunningJob, sample: Sample, _cluster: str) -> None:
    record = job.record
    is_slurm = _own_slurm_job(record) is not None
    unit = {
        "manager": "slurm" if is_slurm else "joblens",
        "uuid": job_id(record) if is_slurm else record.job.uuid,
        "hostname": record.attempt.owner.host if record.attempt is not None else "",
    }
    label = labels(unit)
    _add_rows(families, _CEEMS, label, sample)
    families.gauge("ceems_compute_unit_cpus", _HELP).add(label, _cpus(record))
    families.gauge("ceems_compute_unit_memory_total_bytes", _HELP).add(label, _memory_limit(job, sample))
    for facts in job.gpus:
        index = str(facts.index)
        flag = labels(
            {**unit, "index": index, "hindex": f"{unit['hostname']}/gpu-{index}", "gpuuuid": facts.uuid}
        )
        families.gauge("ceems_compute_unit_gpu_index_flag", _HELP).add(flag, 1)


# ---- cAdvisor ----------------------------------------------------------------------------------------

_CADVISOR: _Rows = (
    ("container_cpu_usage_seconds_total", COUNTER, _USEC, lambda s: s.cpu_total_usec),
    ("container_cpu_user_seconds_total", COUNTER, _USEC, lambda s: s.cpu_user_usec),
    ("container_cpu_system_seconds_total", COUNTER, _USEC, lambda s: s.cpu_system_usec),
    ("container_cpu_cfs_throttled_seconds_total", COUNTER, _USEC, lambda s: s.cpu_throttled_usec),
    ("container_memory_usage_bytes", GAUGE, 1, lambda s: s.memory_current_bytes),
    ("container_memory_max_usage_bytes", GAUGE, 1, lambda s: s.memory_kernel_peak_bytes),
    ("container_memory_rss", GAUGE, 1, lambda s: s.memory_anon_bytes),
    ("container_memory_cache", GAUGE, 1, lambda s: s.memory_file_bytes),
    ("container_network_receive_bytes_total", COUNTER, 1, lambda s: s.network_rx_bytes),
    ("container_network_transmit_bytes_total", COUNTER, 1, lambda s: s.network_tx_bytes),
    ("container_fs_reads_bytes_total", COUNTER, 1, lambda s: s.io_read_bytes),
    ("container_fs_writes_bytes_total", COUNTER, 1, lambda s: s.io_write_bytes),
    ("container_processes", GAUGE, 1, lambda s: s.processes),
    ("container_threads", GAUGE, 1, lambda s: s.threads),
    ("container_oom_events_total", COUNTER, 1, lambda s: s.oom_kills),
)


def _working_set(sample: Sample) -> int | None:
    """Returns cAdvisor's working set: charged memory without inactive file pages. Samples do not count those
    separately, so all file pages except shared memory are excluded."""
    if sample.memory_current_bytes is None:
        return None
    cache = max(0, (sample.memory_file_bytes or 0) - (sample.memory_shmem_bytes or 0))
    return max(0, sample.memory_current_bytes - cache)


def _add_cadvisor(families: Families, job: RunningJob, sample: Sample, _cluster: str) -> None:
    record = job.record
    container = record.job.container
    label = labels(
        {
            "id": _group_of(record),
            "name": record.job.name,
            "image": container.image if container is not None else record.job.tool,
        }
    )
    _add_rows(families, _CADVISOR, label, sample)
    families.gauge("container_memory_working_set_bytes", _HELP).add(label, _working_set(sample))
    # In cAdvisor, 0 means unlimited.
    families.gauge("container_spec_memory_limit_bytes", _HELP).add(label, sample.memory_limit_bytes or 0)
    if record.attempt is not None:
        families.gauge("container_start_time_seconds", _HELP).add(label, record.attempt.started_at_us / _USEC)
