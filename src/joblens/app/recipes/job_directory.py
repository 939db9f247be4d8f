"""Job directory of a recipe, of joblens or DataJuicer: its contents, and whether its process is alive."""

import glob
import mmap
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct

from joblens.analysis.recipes.progress import PlannedWork, planned_by_names, planned_by_nodes, planned_by_plan
from joblens.analysis.recipes.snapshot_json import JobAbout
from joblens.data.base.job_folder import JobFolder, read_plan, running_executor
from joblens.files.private import open_plain_file
from joblens.files.processes import process_start_ticks
from joblens.model.errors import InputError, JoblensError
from joblens.model.jobs.job import Record
from joblens.model.recipes.recipe import CheckpointStrategy, RecipePlan
from joblens.model.values.json_text import decode_json
from joblens.plan.workflows.plan_document import plan_from_json

_CLOCK_SLACK_S = 2.0  # the machine's clock may have been adjusted since its start


class JobProcess(Struct, frozen=True, kw_only=True):
    process_id: int | None = None
    start_ticks: int | None = None
    is_alive: bool | None = None  # None: unknown


TOOL = "recipe"  # of jobs that run recipes


def job_dir_of(record: Record) -> str | None:
    """Returns the directory of a recipe's job; None for any other job."""
    path = record.job.params.get("job_dir")
    return path if record.job.tool == TOOL and isinstance(path, str) else None


def plan_of_record(record: Record) -> RecipePlan | None:
    """Returns the plan of a recipe's job from its directory, or None. The directory is text of the job: the
    plan in it must be of this job."""
    path = job_dir_of(record)
    try:
        plan = None if path is None else read_plan(path)
    except (JoblensError, OSError):
        return None
    return plan if plan is not None and plan.job_id == record.job.external_id else None


def process_of_executor(folder: JobFolder) -> JobProcess | None:
    """Returns the process of a joblens job, from the lock of its executor. None: there is no such lock."""
    if not os.path.exists(folder.lock):
        return None
    try:
        holder = running_executor(folder)
    except PermissionError:
        return JobProcess()
    if holder is None:
        return JobProcess(is_alive=False)
    is_here = holder.host == os.uname().nodename
    return JobProcess(
        process_id=holder.pid, start_ticks=holder.start_ticks if is_here else None, is_alive=is_here or None
    )


def live_process(process_id: int | None, last_event_time: float | None) -> JobProcess:
    """Returns the process of any other job, by the pid in its events: a process that started after the
    last event is another one with the same pid."""
    if process_id is None or last_event_time is None:
        return JobProcess(process_id=process_id)
    ticks = process_start_ticks(process_id)
    if ticks is None or _started_at(ticks) > last_event_time + _CLOCK_SLACK_S:
        return JobProcess(process_id=process_id, is_alive=False)
    return JobProcess(process_id=process_id, start_ticks=ticks, is_alive=True)


def _started_at(ticks: int) -> float:
    with open("/proc/stat", "rb") as file:
        booted_at = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
    return booted_at + ticks / os.sysconf("SC_CLK_TCK")


_NODE_NAME = re.compile(rb'"node_id"\s*:\s*"([^"\\]+)"')
_DEFAULT_STRATEGY = CheckpointStrategy.EVERY_N_OPS  # of both, if checkpoints are on and nothing is configured


_LEAST_FREE_BYTES = 1 << 16
_MARKS = (
    "events.jsonl",
    "job_summary.json",
    "dag_execution_plan.json",
    "metadata/plan.json",
)


@contextmanager
def readable_or_input_error() -> Iterator[None]:
    """Jobs' folders are private: those of another user are known, but unreadable."""
    try:
        yield
    except PermissionError as error:
        raise InputError(
            f"{error.filename or 'a file of the job'} cannot be read: permission denied",
            hint="job directories are private to their users",
        ) from error
    except OSError as error:
        if error.filename is None:
            raise
        raise InputError(f"{error.filename} cannot be read: {error.strerror}") from error


def is_job_folder(path: str) -> bool:
    """Returns whether it contains any file of a recipe's job."""
    if any(os.path.exists(os.path.join(path, name)) for name in _MARKS):
        return True
    return bool(glob.glob(os.path.join(glob.escape(path), "events_*.jsonl")))


def _hint(path: str) -> str:
    with os.scandir(path) as entries:
        jobs = sorted(entry.name for entry in entries if entry.is_dir() and is_job_folder(entry.path))
    if not jobs:
        return "give the directory that has the event log"
    return f"its jobs are {', '.join(jobs[-3:])}{' and others' if len(jobs) > 3 else ''}; --list shows them"


class JobDirectory:
    """Read once, except for files that change while a job runs."""

    def __init__(self, path: str) -> None:
        if not os.path.isdir(path):
            raise InputError(
                f"there is no job directory {path}", hint="give the directory that has the event log"
            )
        if not os.access(path, os.R_OK | os.X_OK):
            raise InputError(
                f"{path} cannot be read: permission denied", hint="job directories are private to their users"
            )
        if not is_job_folder(path):
            raise InputError(
                f"{path} is not a job directory: no event log, no plan, no summary", hint=_hint(path)
            )
        self.path = path
        self.job_id = os.path.basename(os.path.abspath(path))
        self.plan = self._read_plan()
        self.folder = JobFolder(path) if self.plan is None else JobFolder.of_plan(self._moved(self.plan))
        self._recipe = {} if self.plan is not None else self._read_recipe()

    def _moved(self, plan: RecipePlan) -> RecipePlan:
        """A folder may have been copied or moved since."""
        return msgspec.structs.replace(plan, job_dir=os.path.abspath(self.path))

    def _read_plan(self) -> RecipePlan | None:
        try:
            with open_plain_file(os.path.join(self.path, "metadata", "plan.json")) as file:
                return plan_from_json(file.read())
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    # Events

    def event_files(self) -> list[str]:
        """In the order they were written: a DataJuicer job starts a new one with each resume."""
        in_folder = sorted(glob.glob(os.path.join(glob.escape(self.path), "events_*.jsonl")))
        named = self.folder.events
        if not os.path.exists(named) and not in_folder:
            recorded = self.read_summary().get("event_log_file")
            if isinstance(recorded, str) and os.path.exists(recorded):
                named = recorded
        return [named, *in_folder] if os.path.exists(named) else in_folder

    # Plan

    def knows_partitions(self) -> bool:
        """False until a job has split files that cannot be read from the middle."""
        return self.plan is None or not self.plan.uncut or os.path.exists(self.dag_path)

    def is_planned(self) -> bool:
        """Returns whether a job is planned, besides a log without events."""
        return self.plan is not None or os.path.exists(self.dag_path) or bool(self.read_summary())

    @property
    def dag_path(self) -> str:
        return self.folder.dag_plan

    def planned(self) -> PlannedWork:
        if self.plan is not None:
            planned = planned_by_plan(self.plan)
            if not self.plan.uncut:
                return planned
            found = planned_by_nodes(self._node_names()).partition_ids
            return msgspec.structs.replace(planned, partition_ids=found)
        by_graph = planned_by_nodes(self._node_names())
        if by_graph.operators:
            return by_graph
        return planned_by_names(call["name"] for call in self.operator_calls())

    def _node_names(self) -> Iterator[str]:
        """Yields names without decoding the whole file, which has a node per operator and partition."""
        try:
            with (
                open_plain_file(self.dag_path) as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
            ):
                for found in _NODE_NAME.finditer(text):
                    yield found[1].decode(errors="replace")
        except (FileNotFoundError, ValueError):  # ValueError: it is empty
            return

    def operator_calls(self) -> list[dict[str, Any]]:
        """Returns name and parameters of each, as in the recipe."""
        if self.plan is not None:
            return [{"name": call.name, "config": call.params} for call in self.plan.recipe.process]
        process = self._recipe.get("process")
        calls = []
        for entry in process if isinstance(process, list) else []:
            name, config = next(iter(entry.items())) if isinstance(entry, dict) and entry else (entry, None)
            calls.append({"name": str(name), "config": config or {}})
        return calls

    def checkpoint_strategy(self) -> str | None:
        if self.plan is not None:
            return self.plan.recipe.checkpoint.strategy.value
        settings = self._recipe.get("checkpoint")
        if not isinstance(settings, dict):
            return None
        if settings.get("enabled") is False:
            return CheckpointStrategy.DISABLED.value
        return str(settings.get("strategy") or _DEFAULT_STRATEGY.value)

    # The recipe's copy

    def recipe_path(self) -> str | None:
        """Returns the copy of the recipe in the job's folder."""
        found = sorted(glob.glob(os.path.join(glob.escape(self.path), "*.y*ml")))
        own = [path for path in found if os.path.basename(path) != "cli.yaml"]
        return own[0] if own else None

    def _read_recipe(self) -> dict[str, Any]:
        path = self.recipe_path()
        if path is None:
            return {}
        import yaml

        try:
            with open_plain_file(path) as file:
                read = yaml.safe_load(file.read().decode(errors="replace"))
        except (OSError, yaml.YAMLError, RecursionError):
            return {}
        return read if isinstance(read, dict) else {}

    # Changing files

    def read_summary(self) -> dict[str, Any]:
        return read_json_object(self.folder.summary)

    def checkpoint_dir(self) -> str | None:
        return self.folder.checkpoints if os.path.isdir(self.folder.checkpoints) else None

    def has_checkpoints(self) -> bool | None:
        path = self.checkpoint_dir()
        if path is None:
            return False
        with os.scandir(path) as entries:
            return any("op_" in entry.name or entry.name.startswith("partition_") for entry in entries)

    def is_disk_full(self) -> bool:
        """Returns whether a job could not write how it ended."""
        try:
            found = os.statvfs(self.path)
        except OSError:
            return False
        return found.f_bavail * found.f_frsize < _LEAST_FREE_BYTES

    def about(self, summary: dict[str, Any], executor_type: str | None) -> JobAbout:
        def recorded(key: str, otherwise: str | None) -> str | None:
            value = summary.get(key)
            return value if isinstance(value, str) else otherwise

        files = self.event_files()
        config = summary.get("config_file")
        recipe = self.recipe_path()
        duration = summary.get("duration")
        return JobAbout(
            executor_type=recorded("executor_type", executor_type),
            config_file=[str(one) for one in config] if isinstance(config, list) else None,
            work_dir=recorded("job_dir", recorded("work_dir", self.path)),
            resumption_command=recorded("resumption_command", None),
            summary_duration=float(duration) if isinstance(duration, int | float) else None,
            is_summary_loaded=bool(summary),
            is_dag_loaded=os.path.exists(self.dag_path),
            event_log_file=recorded("event_log_file", files[-1] if files else None),
            event_log_dir=recorded("event_log_dir", _if_there(self.folder.logs)),
            checkpoint_dir=recorded("checkpoint_dir", self.checkpoint_dir()),
            metadata_dir=recorded("metadata_dir", _if_there(self.folder.metadata)),
            backed_up_config_path=recorded("backed_up_config_path", recipe),
        )


def _if_there(path: str) -> str | None:
    return path if os.path.exists(path) else None


def summary_in(job_dir: str) -> dict[str, Any]:
    return read_json_object(JobFolder(job_dir).summary)


def read_json_object(path: str) -> dict[str, Any]:
    """Returns {} for a file that does not exist or is not an object."""
    try:
        with open_plain_file(path) as file:
            found: dict[str, Any] = decode_json(file.read(), dict[str, Any])
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return found
