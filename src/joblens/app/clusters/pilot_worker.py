"""Pilot worker that a cluster starts for a run: `python -m joblens.app.clusters.pilot_worker FILE`.

FILE is private JSON (`model.clusters.placement.WorkerConfig`), `-` reads it from standard input. The
worker takes only tickets of its run. It exits when they have ended, when there were none for a while, or
before its walltime ends. On SIGTERM it asks the cluster why its allocation ends: jobs of a cancelled one
are cancelled with it, others are requeued. The worker of one job exits with the exit code of that job.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from joblens.agent.runtime.output_folders import MARK
from joblens.app.clusters.worker_files import write_error
from joblens.app.jobs.queries import exit_code_of
from joblens.app.queue.worker import PilotOptions, RunningWorker, WorkerOptions
from joblens.app.wiring.agent_context import OwnLog
from joblens.app.wiring.background_process import log_line
from joblens.app.wiring.settings import load_settings
from joblens.files.standard_streams import guard_standard_error
from joblens.model.clusters.allocation import slurm_allocation
from joblens.model.clusters.placement import AllocationEnding, WorkerConfig
from joblens.model.clusters.slurm import CANCELLED_REASON
from joblens.model.delivery import Claim
from joblens.model.errors import ConfigError, InputError, JoblensError
from joblens.model.jobs.job import Placement, Record, Status
from joblens.model.settings import Settings
from joblens.probes.host.machine_load import read_host
from joblens.runners.slurm.allocations import ending_of

if TYPE_CHECKING:
    from joblens.runners.nodes.listener import NodeListener

SLURM = "slurm"


def placement_of(config: WorkerConfig, environ: Mapping[str, str]) -> Placement | None:
    """Returns the driver's facts about the allocation with those of this machine. None: there is no
    cluster."""
    configured = config.placement
    if "SLURM_JOB_ID" not in environ or (configured is not None and configured.engine != SLURM):
        return configured
    placement = configured or Placement(engine=SLURM)
    found = {
        "job_id": slurm_job_id(environ),
        "cluster": environ.get("SLURM_CLUSTER_NAME", ""),
        "partition": environ.get("SLURM_JOB_PARTITION", ""),
        "account": environ.get("SLURM_JOB_ACCOUNT", ""),
        "qos": environ.get("SLURM_JOB_QOS", ""),
    }
    return replace(
        placement, nodes=_nodes(placement, environ), **{name: value for name, value in found.items() if value}
    )


def _nodes(placement: Placement, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns all nodes of its job, this one first; of an allocation for many jobs only this one."""
    allocation = slurm_allocation(environ)
    if allocation is None:
        return placement.nodes
    if placement.is_allocation:
        return (allocation.here,)
    return (allocation.here, *allocation.others(len(allocation.nodes)))


def rename_command(config: WorkerConfig, environ: Mapping[str, str]) -> list[str] | None:
    """Returns the command that names an element of an array after its job: Slurm gives all elements the
    name of the array. None: it is not an element of an array."""
    index = environ.get("SLURM_ARRAY_TASK_ID", "")
    if not config.names or not config.is_array or not index.isdecimal() or int(index) >= len(config.names):
        return None
    return [
        *("scontrol", "update", f"jobid={slurm_job_id(environ)}", f"name={config.names[int(index)]}"),
        f"comment=joblens run={config.run_uuid} job={config.tickets[int(index)]}",
    ]


def is_on_every_node(environ: Mapping[str, str]) -> bool:
    """Returns whether Slurm started such a worker on each node of the allocation: all find the same."""
    nodes = environ.get("SLURM_JOB_NUM_NODES", "")
    return bool(nodes) and environ.get("SLURM_STEP_NUM_NODES", "") == nodes


def slurm_job_id(environ: Mapping[str, str]) -> str:
    """Returns the id as people and sacct write it: 123, or 123_4 of an array."""
    array, task = environ.get("SLURM_ARRAY_JOB_ID", ""), environ.get("SLURM_ARRAY_TASK_ID", "")
    return f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID", "")


_STDIN = "-"
_LARGEST_BYTES = 64 << 20
_MOST_EXIT_CODE = 255
_CANCEL_S = 10.0  # for Slurm to accept a scancel
_RENAME_S = 30.0  # for Slurm to accept a name


def read_worker_config(path: str) -> WorkerConfig | None:
    """Returns None if the file is gone, and with it the work. Raises InputError."""
    try:
        if path == _STDIN:
            data = sys.stdin.buffer.read(_LARGEST_BYTES)
        else:
            with open(path, "rb") as file:
                data = file.read(_LARGEST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"the worker configuration cannot be read: {error}") from error
    try:
        return msgspec.json.decode(data, type=WorkerConfig)
    except msgspec.MsgspecError as error:
        raise InputError(f"the worker configuration is invalid: {error}") from error


def own_tickets(config: WorkerConfig, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns tickets; of an array, the one at its own index. Raises InputError."""
    if not config.is_array:
        return config.tickets
    index = environ.get("SLURM_ARRAY_TASK_ID", "")
    if not index.isdecimal() or int(index) >= len(config.tickets):
        raise InputError(f"there is no job for task {index or '(none)'} of this array")
    return (config.tickets[int(index)],)


def serve(
    config: WorkerConfig, environ: Mapping[str, str], report: Callable[[str], None], folder: str = ""
) -> int:
    """Works until nothing is left to do. `folder`: of the configuration file. Returns the exit code of
    the allocation: that of its job, 0 if it had several. Raises JoblensError."""
    _check_store(config)
    _rename_element(config, environ)
    settings = _settings(config)
    placement = placement_of(config, environ)
    options = _options(config, placement, environ)
    listener = options.pilot.listener if options.pilot is not None else None
    is_for_tickets = bool(config.tickets) and not config.queues and listener is None
    records: list[Record] = []

    def has_ended(record: Record, _claim: Claim) -> None:
        if is_for_tickets:
            records.append(record)

    running = RunningWorker(
        settings,
        options,
        OwnLog(settings.logs, lambda text, level: report(f"{level}: {text}")),
        report,
        idle_s=0.0 if is_for_tickets else config.idle_s,
        has_ended=has_ended,
    )
    if folder and running.context.nodes is not None and is_on_every_node(environ):
        running.context.nodes.share(folder)
    if options.pilot is not None and options.pilot.ends_at_s is not None:
        deadline_s, ends_s = options.pilot.ends_at_s, _ends_at_s(environ)
        ending = ending_of("TIMEOUT", slurm_job_id(environ), walltime_s=config.walltime_s)
        running.context.loop.add_timed(
            _WalltimeWatch(deadline_s, (deadline_s + (ends_s or deadline_s)) / 2, running, ending)
        )
    running.run(listener)
    if config.listen:
        from joblens.runners.nodes.pilot_worker import leave_home

        leave_home(config.listen, MARK)
    if not is_for_tickets or len(options.pilot.tickets if options.pilot is not None else ()) != 1:
        return 0
    if records and is_cancelled_here(records[-1]):
        cancel_own_allocation(environ)
    return allocation_exit_code(records, has_ended_early=running.worker.is_ending)


def is_cancelled_here(record: Record) -> bool:
    """Returns whether joblens cancelled it; Slurm knows of its own scancel."""
    reason = "" if record.outcome is None else record.outcome.reason
    return record.status is Status.CANCELLED and reason != CANCELLED_REASON


def allocation_exit_code(records: Sequence[Record], *, has_ended_early: bool) -> int:
    """Returns the exit code of the allocation of one job, so that Slurm shows and mails a failure: that
    of the job; 128+15 if it was requeued."""
    if not records:
        return 128 + signal.SIGTERM if has_ended_early else 0
    code = exit_code_of(records[-1])
    return code if 0 <= code <= _MOST_EXIT_CODE else JoblensError.exit_code


def cancel_own_allocation(environ: Mapping[str, str]) -> None:
    """Makes Slurm show a job that joblens cancelled as cancelled, not as failed."""
    job_id = slurm_job_id(environ)
    if not job_id:
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            ["scancel", "--quiet", job_id],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CANCEL_S,
            check=False,
        )


def _rename_element(config: WorkerConfig, environ: Mapping[str, str]) -> None:
    """Runs while the job does: a busy controller or a node without scontrol delays nothing."""
    command = rename_command(config, environ)
    if command is None:
        return

    def rename() -> None:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=dict(environ),
                timeout=_RENAME_S,
                check=False,
            )

    threading.Thread(target=rename, name="joblens-rename", daemon=True).start()


class _WalltimeWatch:
    """Claims nothing after the first time; after the second, jobs end with the walltime of their own
    allocation, or are requeued if they shared it."""

    def __init__(
        self, first_s: float, second_s: float, running: RunningWorker, ending: AllocationEnding | None
    ) -> None:
        self._due_s = [first_s, second_s]
        self._running = running
        self._ending = ending

    def next_wake_s(self) -> float | None:
        return self._due_s[0] if self._due_s else None

    def wake(self) -> None:
        while self._due_s and time.monotonic() >= self._due_s[0]:
            self._due_s.pop(0)
            if self._due_s:
                self._running.worker.end()
            else:
                self._running.worker.release_allocation(self._ending)


def _check_store(config: WorkerConfig) -> None:
    """A file that several machines write at once gets corrupted, on any file system."""
    host = read_host()
    if config.boot_id and config.boot_id != host.boot_id:
        raise ConfigError(
            f"the store {config.store} is a file on another machine; {host.hostname} cannot write it",
            hint="runs on several machines need a server: --store postgresql://USER@HOST/DATABASE",
        )


def _settings(config: WorkerConfig) -> Settings:
    return load_settings(config=config.config or None, overrides={"store.url": config.store}).settings


def _options(config: WorkerConfig, placement: Placement | None, environ: Mapping[str, str]) -> WorkerOptions:
    return WorkerOptions(
        concurrency=config.most_jobs or config.concurrency or _node_cpus(environ),
        queues=config.queues,
        name=f"{placement.engine}-{placement.job_id or placement.node_id}"[:60] if placement else "",
        pilot=PilotOptions(
            tickets=own_tickets(config, environ),
            memory_bytes=config.memory_bytes if config.memory_bytes is not None else _node_memory(environ),
            gpus=config.gpus,
            ends_at_s=_deadline_s(config, environ),
            placement=placement,
            allocation_id=placement.job_id if placement is not None and not config.listen else "",
            user=config.user,
            listener=_listener(config),
            elsewhere=config.elsewhere,
            why_ended=_why_ended(config, placement, environ),
        ),
    )


def _why_ended(
    config: WorkerConfig, placement: Placement | None, environ: Mapping[str, str]
) -> Callable[[], AllocationEnding | None] | None:
    """Returns a function that asks why Slurm ends the allocation; None: this is not in one."""
    if placement is None or placement.engine != "slurm" or not slurm_job_id(environ):
        return None

    def ask() -> AllocationEnding | None:
        from joblens.runners.slurm.allocations import why_slurm_ends

        ends_s = _ends_at_s(environ)
        return why_slurm_ends(
            slurm_job_id(environ),
            walltime_s=config.walltime_s,
            left_s=None if ends_s is None else ends_s - time.monotonic(),
            lead_s=config.reserve_s,
        )

    return ask


def _listener(config: WorkerConfig) -> "NodeListener | None":
    if not config.listen:
        return None
    from joblens.runners.nodes.listener import NodeListener

    return NodeListener(config.listen)


def _node_cpus(environ: Mapping[str, str]) -> int | None:
    """Returns the CPUs from Slurm, which need not enforce them."""
    for name in ("SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK"):
        if environ.get(name, "").isdecimal():
            return int(environ[name])
    return None


def _node_memory(environ: Mapping[str, str]) -> int | None:
    """Returns the memory from Slurm, which need not enforce it. In MiB; 0: the node's whole memory."""
    whole = environ.get("SLURM_MEM_PER_NODE", "")
    if whole.isdecimal() and int(whole):
        return int(whole) << 20
    each, cpus = environ.get("SLURM_MEM_PER_CPU", ""), _node_cpus(environ)
    return (int(each) << 20) * cpus if each.isdecimal() and int(each) and cpus else None


def _deadline_s(config: WorkerConfig, environ: Mapping[str, str]) -> float | None:
    """By the monotonic clock: the reserved time before its end, but at most a fifth of the whole."""
    ends_s = _ends_at_s(environ)
    if ends_s is None:
        return None
    return ends_s - min(config.reserve_s, (ends_s - time.monotonic()) / 5)


def _ends_at_s(environ: Mapping[str, str]) -> float | None:
    end = environ.get("SLURM_JOB_END_TIME", "")
    return time.monotonic() + int(end) - time.time() if end.isdecimal() and int(end) else None


def main() -> None:
    # Before anything else: an early signal must not kill a process that has nothing yet.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    guard_standard_error()
    path = sys.argv[1] if len(sys.argv) > 1 else _STDIN

    def report(text: str) -> None:
        log_line("pilot", text)

    try:
        config = read_worker_config(path)
        if config is None:
            report("nothing to do: the run has ended")
            return
        os.environ.update(config.env)
        folder = "" if path == _STDIN else os.path.dirname(os.path.abspath(path))
        code = serve(config, os.environ, report, folder)
    except (JoblensError, OSError) as error:
        hint = getattr(error, "hint", "")
        text = f"{error}{f' ({hint})' if hint else ''}"
        report(f"ended: {text}")
        if path != _STDIN:
            write_error(path, text)
        sys.exit(2)
    if path != _STDIN and config.tickets and not config.is_array and not config.queues:
        with contextlib.suppress(OSError):
            os.unlink(path)  # no other worker uses it
    # A signal from now on did not end the job.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(code)


if __name__ == "__main__":
    main()
