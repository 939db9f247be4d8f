"""Job folder of a recipe's job: its paths, its lock, its plan file."""

import errno
import fcntl
import os
import time
from collections.abc import Callable

import msgspec
from msgspec import Struct

from joblens.files.private import make_private_folder, open_plain_file
from joblens.files.processes import process_start_ticks
from joblens.model.errors import JobIsRunning, RecipeError
from joblens.model.recipes.recipe import RecipePlan
from joblens.plan.workflows.plan_document import plan_from_json

EVENTS = "events.jsonl"


class JobFolder:
    """Paths of a job; `make` creates the folders. A recipe may put events and checkpoints elsewhere; a folder
    with the name of the job keeps jobs apart there."""

    def __init__(self, job_dir: str, *, event_log_dir: str = "", checkpoint_dir: str = "") -> None:
        self.path = os.path.abspath(job_dir)
        self.job_id = os.path.basename(self.path)
        self.logs = os.path.join(self.path, "logs")
        self.metadata = os.path.join(self.path, "metadata")
        self.partitions = os.path.join(self.path, "partitions")
        self.rejects = os.path.join(self.path, "rejects")
        self.trace = os.path.join(self.path, "trace")
        self.event_log_dir = self._with_job_id(event_log_dir) or self.path
        self.checkpoints = self._with_job_id(checkpoint_dir) or os.path.join(self.path, "checkpoints")

    @classmethod
    def of_plan(cls, plan: RecipePlan) -> "JobFolder":
        recipe = plan.recipe
        return cls(plan.job_dir, event_log_dir=recipe.event_log_dir, checkpoint_dir=recipe.checkpoint_dir)

    def _with_job_id(self, folder: str) -> str:
        if not folder or self.job_id in folder.split(os.sep):
            return folder
        return os.path.join(folder, self.job_id)

    def make(self) -> None:
        folders = (self.path, self.logs, self.metadata, self.partitions, self.checkpoints, self.event_log_dir)
        for folder in folders:
            make_private_folder(folder)

    def written_to(self, export_path: str) -> tuple[str, ...]:
        """Returns the folders that may be on different disks; the job's first."""
        return (self.path, self.checkpoints, self.event_log_dir, os.path.dirname(export_path))

    # Files for people and other programs

    @property
    def events(self) -> str:
        return os.path.join(self.event_log_dir, EVENTS)

    @property
    def events_log(self) -> str:
        return os.path.join(self.logs, "events.log")

    @property
    def log(self) -> str:
        return os.path.join(self.logs, "log.txt")

    @property
    def dag_plan(self) -> str:
        return os.path.join(self.path, "dag_execution_plan.json")

    @property
    def summary(self) -> str:
        return os.path.join(self.path, "job_summary.json")

    def recipe_copy(self, file_name: str) -> str:
        return os.path.join(self.path, os.path.basename(file_name) or "recipe.yaml")

    # Files for the executor

    @property
    def plan(self) -> str:
        return os.path.join(self.metadata, "plan.json")

    @property
    def dataset_mapping(self) -> str:
        return os.path.join(self.metadata, "dataset_mapping.json")

    @property
    def final_mapping(self) -> str:
        return os.path.join(self.metadata, "final_mapping_report.json")

    @property
    def lock(self) -> str:
        """Held with flock by the executor that runs the job; contains its process ID and start time."""
        return os.path.join(self.metadata, "lock")

    @property
    def reserve(self) -> str:
        """Disk space reserved for writing how the job ended."""
        return os.path.join(self.metadata, "reserve")

    @property
    def export_manifest(self) -> str:
        return os.path.join(self.metadata, "export.json")

    @property
    def earlier_export(self) -> str:
        """Export manifest of the job that this one replaced with --start-over."""
        return os.path.join(self.metadata, "earlier_export.json")

    def cut_folder(self, number: int) -> str:
        """Pieces of one input that cannot be read from the middle."""
        return os.path.join(self.partitions, f"input_{number:06d}")

    def cut_manifest(self, number: int) -> str:
        return os.path.join(self.cut_folder(number), "pieces.json")

    def cut_rejects(self, number: int) -> str:
        return os.path.join(self.rejects, f"input_{number:06d}.jsonl")

    def rejects_of(self, partition_id: int) -> str:
        return os.path.join(self.rejects, f"partition_{partition_id:06d}.jsonl")

    def output_of(self, partition_id: int | None) -> str:
        """Output of user operators; None: output of a global operator."""
        name = "all_partitions" if partition_id is None else f"partition_{partition_id:06d}"
        return os.path.join(self.logs, "operators", f"{name}.log")

    def trace_of(self, index: int, name: str) -> str:
        return os.path.join(self.trace, f"op_{index:03d}_{name}.jsonl")

    def trace_parts(self, index: int, name: str) -> str:
        return os.path.join(self.partitions, f"trace_{index:03d}_{name}")

    # Files of partitions

    def checkpoints_of(self, partition_id: int) -> str:
        return os.path.join(self.checkpoints, f"partition_{partition_id:06d}")

    def checkpoint(self, partition_id: int, index: int, name: str) -> str:
        return os.path.join(self.checkpoints_of(partition_id), f"op_{index:03d}_{name}.arrow")

    def checkpoint_manifest(self, partition_id: int, index: int, name: str) -> str:
        return os.path.join(self.checkpoints_of(partition_id), f"op_{index:03d}_{name}.json")

    def checkpoint_rejects(self, partition_id: int, index: int, name: str) -> str:
        return os.path.join(self.checkpoints_of(partition_id), f"op_{index:03d}_{name}.rejects.jsonl")

    def signatures_dir(self, index: int) -> str:
        return os.path.join(self.partitions, f"signatures_{index:03d}")

    def signatures(self, partition_id: int, index: int) -> str:
        return os.path.join(self.signatures_dir(index), f"partition_{partition_id:06d}.arrow")

    def stage_whole(self, partition_id: int, stage: int) -> str:
        """State of a partition that waits for the others."""
        return os.path.join(self.checkpoints_of(partition_id), f"stage_{stage:03d}.arrow")

    def stage_manifest(self, partition_id: int, stage: int) -> str:
        return os.path.join(self.checkpoints_of(partition_id), f"stage_{stage:03d}.json")

    def stage_rejects(self, partition_id: int, stage: int) -> str:
        return os.path.join(self.checkpoints_of(partition_id), f"stage_{stage:03d}.rejects.jsonl")

    def masks(self, index: int) -> str:
        """Decision of a global operator: one bit per row of each partition."""
        return os.path.join(self.partitions, f"masks_{index:03d}.bin")

    def masks_manifest(self, index: int) -> str:
        return os.path.join(self.partitions, f"masks_{index:03d}.json")

    def export_part(self, partition_id: int, suffix: str) -> str:
        return os.path.join(self.partitions, f"partition_{partition_id:06d}{suffix}")

    def export_part_manifest(self, partition_id: int) -> str:
        return os.path.join(self.partitions, f"partition_{partition_id:06d}.json")

    @property
    def moved(self) -> str:
        """Position of each part in the export, written before parts are moved there."""
        return os.path.join(self.partitions, "moved.json")

    def scratch(self, index: int) -> str:
        """Scratch space of a global operator."""
        return os.path.join(self.partitions, f"scratch_{index:03d}")


def is_stage_file(name: str) -> bool:
    """Returns whether the file is the state of a partition that waits for others, not a checkpoint."""
    return name.startswith("stage_")


# Workers hold the lock too; when their executor is killed, the kernel takes a moment to kill them.
_WAIT_FOR_ORPHANS_S = 10.0
_POLL_S = 0.02


class Holder(Struct, frozen=True, kw_only=True):
    """The process that executes a job."""

    pid: int
    start_ticks: int | None  # since boot: distinguishes it from a later process with the same ID
    host: str

    @property
    def is_alive(self) -> bool:
        """Returns whether it runs on this machine; False for another machine."""
        ticks = process_start_ticks(self.pid)
        return self.host == os.uname().nodename and ticks is not None and ticks == self.start_ticks


def running_executor(folder: JobFolder) -> Holder | None:
    """Returns the process that executes the job, or None."""
    try:
        descriptor = os.open(folder.lock, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if _is_free(descriptor):
            return None
        holder = _read(descriptor)
        return (
            holder if holder is not None and (holder.is_alive or holder.host != os.uname().nodename) else None
        )
    finally:
        os.close(descriptor)


def take_lock(
    folder: JobFolder,
    *,
    mono_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Returns a descriptor that holds the lock until it is closed, here and in all forked processes. Raises
    JobIsRunning."""
    descriptor = _open(folder)
    until_s = mono_s() + _WAIT_FOR_ORPHANS_S
    while True:
        if _try_lock(descriptor):
            if is_lock_valid(folder, descriptor):
                break
            os.close(descriptor)  # the folder was removed before it could be locked
            descriptor = _open(folder)
            continue
        holder = _read(descriptor)
        if (holder is not None and holder.is_alive) or mono_s() > until_s:
            os.close(descriptor)
            who = f"process {holder.pid} on {holder.host}" if holder else "another process"
            raise JobIsRunning(f"job {folder.job_id} is already running in {who}")
        sleep(_POLL_S)
    me = Holder(pid=os.getpid(), start_ticks=process_start_ticks(os.getpid()), host=os.uname().nodename)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(me) + b"\n", 0)
    return descriptor


def _open(folder: JobFolder) -> int:
    make_private_folder(folder.metadata)
    return os.open(folder.lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)


def is_lock_valid(folder: JobFolder, descriptor: int) -> bool:
    """Returns whether the locked file is still the job's: the folder may have been removed, or replaced by
    another job."""
    try:
        current = os.stat(folder.lock)
    except OSError:
        return False
    locked = os.fstat(descriptor)
    return (current.st_ino, current.st_dev) == (locked.st_ino, locked.st_dev)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _is_free(descriptor: int) -> bool:
    """Tests the lock by taking a shared one for a moment; an executor that starts just then retries."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _read(descriptor: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 1000, 0), type=Holder)
    except (msgspec.MsgspecError, OSError):
        return None  # being written, or not ours


START_OVER = "--start-over discards the job and starts again; without an ID a new job is created"


def read_plan(job_dir: str) -> RecipePlan | None:
    """Reads the plan; None: there is no such job. Raises RecipeError if the file cannot be read."""
    path = JobFolder(job_dir).plan
    try:
        with open_plain_file(path) as file:
            return plan_from_json(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RecipeError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise RecipeError(f"{path} is damaged: {error}", hint=START_OVER) from error


def planned_job(job_dir: str) -> RecipePlan:
    """Reads the plan of a job that must exist. Raises RecipeError."""
    plan = read_plan(job_dir)
    if plan is None:
        raise RecipeError(f"no planned job in {job_dir}: {JobFolder(job_dir).plan} is missing")
    return plan
