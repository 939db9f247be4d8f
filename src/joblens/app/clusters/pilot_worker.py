"""Pilot worker that a cluster starts for a run: `python -m joblens.app.clusters.pilot_worker FILE`.

FILE is a private JSON text (`model.clusters.placing.WorkerConfig`), `-` reads it from standard input. The
worker takes only tickets of its run. It ends when they have ended, when there were none for a while, or
before its walltime is up. On SIGTERM it asks the cluster why its allocation ends: jobs of a cancelled one
end with it, others go back to the queue. The worker of one job ends with the exit code of that job.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from joblens.agent.runtime.output_folders import MARK
from joblens.app.clusters.worker_files import leave_words
from joblens.app.jobs.queries import exit_code_of
from joblens.app.queue.worker import PilotOptions, RunningWorker, WorkerOptions
from joblens.app.wiring.agent_context import OwnLog
from joblens.app.wiring.background_process import log_line
from joblens.app.wiring.settings import load_settings
from joblens.files.standard_streams import guard_standard_error
from joblens.model.clusters.allocation import slurm_allocation
from joblens.model.clusters.placement import PlaceEnding, WorkerConfig
from joblens.model.clusters.slurm import CANCELLED_REASON
from joblens.model.delivery import Claim
from joblens.model.errors import ConfigError, InputError, JoblensError
from joblens.model.jobs.job import Placement, Record, Status
from joblens.model.settings import Settings
from joblens.ports.workers import NodeListener
from joblens.probes.host.machine_load import read_host
from joblens.runners.slurm.allocations import ending_of

SLURM = "slurm"


def place_of(hire: WorkerConfig, environ: Mapping[str, str]) -> Placement | None:
    """What whoever hired it knew, and what only shows here. None: no cluster has a part in it."""
    told = hire.placement
    if "SLURM_JOB_ID" not in environ or (told is not None and told.engine != SLURM):
        return told
    placement = told or Placement(engine=SLURM)
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
    """All that its job has, this one first; of an allocation for many jobs only this one."""
    allocation = slurm_allocation(environ)
    if allocation is None:
        return placement.nodes
    if placement.is_allocation:
        return (allocation.here,)
    return (allocation.here, *allocation.others(len(allocation.nodes)))


def rename_command(hire: WorkerConfig, environ: Mapping[str, str]) -> list[str] | None:
    """Returns the command that names an element of an array after its job: Slurm gives all elements the name
    of the array. None: it is no element of an array."""
    index = environ.get("SLURM_ARRAY_TASK_ID", "")
    if not hire.names or not hire.is_array or not index.isdecimal() or int(index) >= len(hire.names):
        return None
    return [
        *("scontrol", "update", f"jobid={slurm_job_id(environ)}", f"name={hire.names[int(index)]}"),
        f"comment=joblens run={hire.run_uuid} job={hire.tickets[int(index)]}",
    ]


def is_on_every_node(environ: Mapping[str, str]) -> bool:
    """Whether Slurm has started such a worker on each node of the allocation: what one finds all do."""
    nodes = environ.get("SLURM_JOB_NUM_NODES", "")
    return bool(nodes) and environ.get("SLURM_STEP_NUM_NODES", "") == nodes


def slurm_job_id(environ: Mapping[str, str]) -> str:
    """As people and sacct write it: 123, or 123_4 of an array."""
    array, task = environ.get("SLURM_ARRAY_JOB_ID", ""), environ.get("SLURM_ARRAY_TASK_ID", "")
    return f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID", "")


_STDIN = "-"
_LARGEST_BYTES = 64 << 20
_MOST_EXIT_CODE = 255
_CANCEL_S = 10.0  # for Slurm to take a scancel
_RENAME_S = 30.0  # for Slurm to take a name


def read_hire(path: str) -> WorkerConfig | None:
    """None: the file is gone, and with it the work. Raises InputError."""
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


def own_tickets(hire: WorkerConfig, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Of an array: the one at its own index. Raises InputError."""
    if not hire.is_array:
        return hire.tickets
    index = environ.get("SLURM_ARRAY_TASK_ID", "")
    if not index.isdecimal() or int(index) >= len(hire.tickets):
        raise InputError(f"there is no job for task {index or '(none)'} of this array")
    return (hire.tickets[int(index)],)


def serve(
    hire: WorkerConfig, environ: Mapping[str, str], tell: Callable[[str], None], folder: str = ""
) -> int:
    """Works until nothing is left to do. `folder`: of the hire's file. Returns the exit code of the
    allocation: that of the job it was for, 0 where it was for several. Raises JoblensError."""
    _check_store(hire)
    _rename_element(hire, environ)
    settings = _settings(hire)
    placement = place_of(hire, environ)
    options = _options(hire, placement, environ)
    ear = options.hired.ear if options.hired is not None else None
    is_for_tickets = bool(hire.tickets) and not hire.queues and ear is None
    records: list[Record] = []

    def has_ended(record: Record, _claim: Claim) -> None:
        if is_for_tickets:
            records.append(record)

    running = RunningWorker(
        settings,
        options,
        OwnLog(settings.logs, lambda text, level: tell(f"{level}: {text}")),
        tell,
        idle_s=0.0 if is_for_tickets else hire.idle_s,
        has_ended=has_ended,
    )
    if folder and running.context.nodes is not None and is_on_every_node(environ):
        running.context.nodes.share(folder)
    if options.hired is not None and options.hired.ends_at_s is not None:
        leaves_s, ends_s = options.hired.ends_at_s, _ends_at_s(environ)
        ending = ending_of("TIMEOUT", slurm_job_id(environ), walltime_s=hire.walltime_s)
        running.context.loop.add_timed(
            _LeavesInTime(leaves_s, (leaves_s + (ends_s or leaves_s)) / 2, running, ending)
        )
    running.run(ear)
    if hire.listen:
        from joblens.runners.nodes.pilot_worker import leave_home

        leave_home(hire.listen, MARK)
    if not is_for_tickets or len(options.hired.tickets if options.hired is not None else ()) != 1:
        return 0
    if records and is_cancelled_here(records[-1]):
        cancel_own_allocation(environ)
    return allocation_exit_code(records, has_left_early=running.worker.is_ending)


def is_cancelled_here(record: Record) -> bool:
    """By joblens; Slurm knows of its own scancel."""
    reason = "" if record.outcome is None else record.outcome.reason
    return record.status is Status.CANCELLED and reason != CANCELLED_REASON


def allocation_exit_code(records: Sequence[Record], *, has_left_early: bool) -> int:
    """Returns the code with which the allocation of one job ends, so that Slurm shows and mails of a failure:
    that of the job; 128+15 where it was given back."""
    if not records:
        return 128 + signal.SIGTERM if has_left_early else 0
    code = exit_code_of(records[-1])
    return code if 0 <= code <= _MOST_EXIT_CODE else JoblensError.exit_code


def cancel_own_allocation(environ: Mapping[str, str]) -> None:
    """A job that joblens cancelled is one that Slurm shows as cancelled, not as failed."""
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


def _rename_element(hire: WorkerConfig, environ: Mapping[str, str]) -> None:
    """Beside the job: a controller that is busy or a node without scontrol delays nothing."""
    command = rename_command(hire, environ)
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


class _LeavesInTime:
    """Takes nothing more from the first time on; from the second on jobs end with the walltime of their own
    allocation, and go on elsewhere where they shared it."""

    def __init__(
        self, first_s: float, second_s: float, running: RunningWorker, ending: PlaceEnding | None
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


def _check_store(hire: WorkerConfig) -> None:
    """A file that several machines write at once does not stay whole, whatever file system it is on."""
    host = read_host()
    if hire.boot_id and hire.boot_id != host.boot_id:
        raise ConfigError(
            f"the store {hire.store} is a file on another machine; {host.hostname} cannot write it",
            hint="runs on several machines need a server: --store postgresql://USER@HOST/DATABASE",
        )


def _settings(hire: WorkerConfig) -> Settings:
    return load_settings(config=hire.config or None, overrides={"store.url": hire.store}).settings


def _options(hire: WorkerConfig, placement: Placement | None, environ: Mapping[str, str]) -> WorkerOptions:
    return WorkerOptions(
        concurrency=hire.most_jobs or hire.concurrency or _cpus_given(environ),
        queues=hire.queues,
        name=f"{placement.engine}-{placement.job_id or placement.node_id}"[:60] if placement else "",
        hired=PilotOptions(
            tickets=own_tickets(hire, environ),
            memory_bytes=hire.memory_bytes if hire.memory_bytes is not None else _memory_given(environ),
            gpus=hire.gpus,
            ends_at_s=_leaves_at_s(hire, environ),
            placement=placement,
            place=placement.job_id if placement is not None and not hire.listen else "",
            user=hire.user,
            ear=_ear(hire),
            elsewhere=hire.elsewhere,
            why_ended=_why_ended(hire, placement, environ),
        ),
    )


def _why_ended(
    hire: WorkerConfig, placement: Placement | None, environ: Mapping[str, str]
) -> Callable[[], PlaceEnding | None] | None:
    """Returns the question why Slurm ends the allocation; None: this is not in one."""
    if placement is None or placement.engine != "slurm" or not slurm_job_id(environ):
        return None

    def ask() -> PlaceEnding | None:
        from joblens.runners.slurm.allocations import why_slurm_ends

        ends_s = _ends_at_s(environ)
        return why_slurm_ends(
            slurm_job_id(environ),
            walltime_s=hire.walltime_s,
            left_s=None if ends_s is None else ends_s - time.monotonic(),
            lead_s=hire.reserve_s,
        )

    return ask


def _ear(hire: WorkerConfig) -> NodeListener | None:
    if not hire.listen:
        return None
    from joblens.runners.nodes.listener import SocketListener

    return SocketListener(hire.listen)


def _cpus_given(environ: Mapping[str, str]) -> int | None:
    """By Slurm, which need not bind anybody to them."""
    for name in ("SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK"):
        if environ.get(name, "").isdecimal():
            return int(environ[name])
    return None


def _memory_given(environ: Mapping[str, str]) -> int | None:
    """By Slurm, which need not hold anybody to it. In MiB; 0: the node's whole memory."""
    whole = environ.get("SLURM_MEM_PER_NODE", "")
    if whole.isdecimal() and int(whole):
        return int(whole) << 20
    each, cpus = environ.get("SLURM_MEM_PER_CPU", ""), _cpus_given(environ)
    return (int(each) << 20) * cpus if each.isdecimal() and int(each) and cpus else None


def _leaves_at_s(hire: WorkerConfig, environ: Mapping[str, str]) -> float | None:
    """By the monotonic clock: so long before its time is up as was set aside for that, but no more than a
    fifth of what there is."""
    ends_s = _ends_at_s(environ)
    if ends_s is None:
        return None
    return ends_s - min(hire.reserve_s, (ends_s - time.monotonic()) / 5)


def _ends_at_s(environ: Mapping[str, str]) -> float | None:
    end = environ.get("SLURM_JOB_END_TIME", "")
    return time.monotonic() + int(end) - time.time() if end.isdecimal() and int(end) else None


def main() -> None:
    # Before anything else: a signal that comes early is not to end a process that has nothing yet.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    guard_standard_error()
    path = sys.argv[1] if len(sys.argv) > 1 else _STDIN

    def tell(text: str) -> None:
        log_line("hired", text)

    try:
        hire = read_hire(path)
        if hire is None:
            tell("nothing to do: the run has ended")
            return
        os.environ.update(hire.env)
        folder = "" if path == _STDIN else os.path.dirname(os.path.abspath(path))
        code = serve(hire, os.environ, tell, folder)
    except (JoblensError, OSError) as error:
        hint = getattr(error, "hint", "")
        text = f"{error}{f' ({hint})' if hint else ''}"
        tell(f"ended: {text}")
        if path != _STDIN:
            leave_words(path, text)
        sys.exit(2)
    if path != _STDIN and hire.tickets and not hire.is_array and not hire.queues:
        with contextlib.suppress(OSError):
            os.unlink(path)  # nobody else is hired by it
    # Of a signal that comes now nobody is to think that it ended the job.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(code)


if __name__ == "__main__":
    main()
