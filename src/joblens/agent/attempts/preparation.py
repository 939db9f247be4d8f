"""Preparation of an attempt: from a planned job to its command, its environment and its output files."""

import hashlib
import os
import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.containers.protocol import with_whole_paths
from joblens.agent.measuring.accounting import JOB_ID_VARIABLE
from joblens.agent.session.context import AgentContext
from joblens.engine.schedule.events import RunActionCommand, RunRecovery, StartAttempt
from joblens.model.delivery import WorkerActions, WorkerCommand
from joblens.model.errors import InputError
from joblens.model.jobs.containers import APPTAINER, apptainer_words
from joblens.model.jobs.job import (
    Accounting,
    ContainerJob,
    EarlySignal,
    FileStamp,
    Granularity,
    Job,
    Requirements,
    RunLink,
)
from joblens.model.jobs.trace import TRACE_VARIABLE, trace_variables
from joblens.model.redaction.names import seeds_of
from joblens.model.redaction.secrets import (
    SecretValues,
    redact_argv,
    redact_env,
    redact_params,
    secret_values,
)
from joblens.model.runs.plan import Plan, PlannedAction, PlannedJob
from joblens.model.runs.run import Run
from joblens.model.runs.workflow_spec import ActionType, Stdio, StdioMode, TriggerType
from joblens.model.values.ids import uuid_of
from joblens.plan.commands.references import put_user_data
from joblens.plan.workflows.selection import command_digest
from joblens.plan.workflows.slurm import srun_signal
from joblens.probes.provenance.program_files import shell_of_workflows


def device_env(devices: tuple[str, ...]) -> dict[str, str]:
    listed = ",".join(devices)
    return {
        "CUDA_VISIBLE_DEVICES": listed,
        "HIP_VISIBLE_DEVICES": listed,
        "NVIDIA_VISIBLE_DEVICES": listed,
        "JOBLENS_GPUS": listed,
    }


# Words of these characters are not special to any shell.
_PLAIN = re.compile(r"[\w@%+=:,./ -]+", re.ASCII)
_QUOTED = re.compile(r"[\w@%+=:,./ '-]+", re.ASCII)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
# Built into a shell, or different there from the program of that name.
_SHELL_WORDS = frozenset(
    ". : alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare "  # noqa: SIM905
    "dirs disown do done elif else enable esac eval exec exit export fc fg fi for function getopts hash help "
    "history if in jobs kill let local logout mapfile popd pushd read readarray readonly return select set "
    "shift shopt source suspend then time times trap type typeset ulimit umask unalias unset until wait "
    "while".split()
)


def command_line(
    planned: PlannedJob, data: Mapping[str, Any], shell: str
) -> tuple[str, bool, tuple[str, ...]]:
    """Returns the line, whether a shell reads it, and the command. Raises InputError for user data that
    cannot be inserted."""
    line = f"{planned.invocation_script} {planned.command}" if planned.invocation_script else planned.command
    if "${user_data." in line:
        line = put_user_data(line, data)
    if not planned.invocation_script:
        words = plain_words(line)
        if words:
            return line, False, words
    return line, True, (shell, "-c", line)


def plain_words(line: str) -> tuple[str, ...]:
    """Returns the words of a line that needs no shell, or an empty tuple if it needs one."""
    if _PLAIN.fullmatch(line):
        words = line.split()
    elif _QUOTED.fullmatch(line) and line.count("'") % 2 == 0:
        words = shlex.split(line)
    else:
        return ()
    if not words or words[0] in _SHELL_WORDS or _ASSIGNMENT.match(words[0]):
        return ()
    return tuple(words)


AUXILIARY = -1  # index of commands that are not jobs of the plan
_UNSAFE = re.compile(r"[^\w.,+@=~-]")
_LONGEST_NAME = 180
_UUIDS_AT_ONCE = 64
_COMMANDS_KNOWN = 16
_SHELL_INSIDE = "/bin/sh"  # of a container
_NO_REQUIREMENTS = Requirements()
_NO_SECRETS = SecretValues({})
_STREAMS = {
    StdioMode.SEPARATE: "",
    StdioMode.COMBINED: "c",
    StdioMode.NO_STDOUT: "o",
    StdioMode.NO_STDERR: "e",
    StdioMode.NONE: "oe",
}


RUN_ATTEMPT_VARIABLES = ("JOBLENS_ATTEMPT", "TORC_ATTEMPT_ID")
_OWN_VARIABLES = frozenset(
    (
        *RUN_ATTEMPT_VARIABLES,
        JOB_ID_VARIABLE,
        "JOBLENS_JOB_NAME",
        "JOBLENS_GPUS",
        "JOBLENS_EXIT_CODE",
        "TORC_JOB_ID",
        "TORC_JOB_NAME",
        "TORC_RETURN_CODE",
    )
)


class RunSetup(Struct, frozen=True, kw_only=True):
    """Settings that all attempts of one run share. Holds the real environment: never stored."""

    run: Run
    plan: Plan
    environ: Mapping[str, str]
    recorded_env: dict[str, str]  # part of it that may be stored
    user: str
    cwd: str
    store_url: str
    output_dir: str  # absolute
    logs_dir: str  # below it; every attempt has a folder there
    enforce: bool
    monitor: bool
    probes: tuple[str, ...] | None
    accounting: Accounting
    grace_s: float
    output_max_bytes: int
    grid_co2_g_per_kwh: float | None = None
    secrets: SecretValues = _NO_SECRETS  # hidden wherever they occur
    has_traces: bool = False  # jobs get their span of a trace


class PreparedAttempt(Struct, frozen=True):
    """`env`: changes to the environment that all attempts share; of a container: all its variables.
    `streams`: as for slots. `refusal`: why it cannot be started."""

    job: Job
    argv: tuple[str, ...]
    env: dict[str, str]
    folder: str
    streams: str
    refusal: str = ""


class AttemptMaker:
    def __init__(self, setup: RunSetup, context: AgentContext) -> None:
        self._setup = setup
        self._context = context
        self._plan = setup.plan
        self._shell = shell_of_workflows()
        monitor = self._plan.monitor
        self._interval_s = monitor.sample_interval_s
        self._granularity = monitor.granularity if monitor.enabled else Granularity.SUMMARY
        self._monitors = setup.monitor and monitor.enabled
        self._tags = (f"workflow={self._plan.name}",)
        self._logs_dir = setup.logs_dir
        self._redact_argv = lru_cache(_COMMANDS_KNOWN)(redact_argv)  # many jobs run the same command
        self.common_env = self._common_env()  # of all slots and each session
        self._signal = signal_number(self._plan.execution.termination_signal)
        self._srun_signal = srun_signal(self._plan.execution)
        self._all_folders: set[str] = set()
        self._folders_known = 0  # jobs of the plan whose folders are in it
        self._random = b""
        self._env_seeds = seeds_of((), {}, setup.recorded_env)
        self._secrets = setup.secrets

    def add_secrets(self, secrets: SecretValues) -> None:
        """Hides them in jobs that are made from now on."""
        if secrets:
            self._secrets = secrets | self._secrets

    def _common_env(self) -> dict[str, str]:
        run, output_dir = self._setup.run, self._setup.output_dir
        workflow = str(run.workflow_number or 0)
        return {
            "JOBLENS_WORKFLOW_ID": workflow,
            "JOBLENS_RUN_ID": run.uuid,
            "JOBLENS_RUN_NUMBER": str(run.number or 0),
            "JOBLENS_OUTPUT_DIR": output_dir,
            "JOBLENS_STORE": self._setup.store_url,
            "TORC_WORKFLOW_ID": workflow,
            "TORC_RUN_ID": str(run.number or 0),
            "TORC_OUTPUT_DIR": output_dir,
            "TORC_WORKFLOW_SUBMISSION_DIR": self._setup.cwd,
        }

    def _written_env(self, planned: PlannedJob) -> dict[str, str]:
        """Returns the variables of the file, without those that joblens sets itself: jobs use these to call
        joblens."""
        if not planned.env:
            return planned.env
        own = self.common_env.keys() | _OWN_VARIABLES
        return {name: value for name, value in planned.env.items() if name not in own}

    # ---- jobs of the plan ----------------------------------------------------------------------------

    def make(
        self, start: StartAttempt, data: Mapping[str, Any], inputs: tuple[FileStamp, ...] = ()
    ) -> PreparedAttempt:
        """`data`: present user data."""
        planned = self._plan.jobs[start.index]
        written = self._written_env(planned)
        container = self._container(planned)
        env = {
            **(_ids_inside(self.common_env) if container is not None else {}),
            **written,
            "JOBLENS_JOB_NAME": planned.name,
            "JOBLENS_ATTEMPT": str(start.attempt),
            "TORC_JOB_ID": str(start.index + 1),
            "TORC_JOB_NAME": planned.name,
            "TORC_ATTEMPT_ID": str(start.attempt),
        }
        if start.gpus:
            env |= device_env(start.gpus)
        refusal = ""
        shell = self._shell if planned.container is None else _SHELL_INSIDE
        try:
            command, is_shell, argv = command_line(planned, data, shell)
        except InputError as error:
            command, is_shell, argv = planned.command, True, (shell, "-c", planned.command)
            refusal = str(error)
        if planned.container is not None and container is None:
            argv = apptainer_words(
                with_whole_paths(planned.container, self._setup.cwd), argv, gpus=planned.requirements.gpus
            )
            command, is_shell = shlex.join(argv), False
            env |= {f"APPTAINERENV_{name}": value for name, value in written.items()}
        job = self._job(
            command,
            argv,
            planned.name,
            RunLink(self._setup.run.uuid, start.index, start.attempt),
            is_shell=is_shell,
            env=written,
            planned=planned,
            start=start,
            inputs=inputs,
            container=container,
        )
        given = {name: data[name] for name in self._data_names(planned) if name in data}
        if given:
            job = replace(secret_values(given).hide_in_job(job), name=job.name, tags=job.tags)
        if self._setup.has_traces:
            env |= trace_variables(job)
        folder = os.path.join(self._logs_dir, self._folder(planned.name, start.attempt))
        return PreparedAttempt(
            job, argv, env, folder, streams_of(planned.stdio or self._plan.execution.stdio), refusal
        )

    def _job(  # noqa: PLR0913 - one field each
        self,
        command: str,
        argv: tuple[str, ...],
        name: str,
        link: RunLink,
        *,
        is_shell: bool,
        env: dict[str, str],
        planned: PlannedJob | None = None,
        start: StartAttempt | None = None,
        inputs: tuple[FileStamp, ...] = (),
        container: ContainerJob | None = None,
    ) -> Job:
        setup, execution = self._setup, self._plan.execution
        needs = start.requirements if start is not None else _NO_REQUIREMENTS
        recorded, added = setup.recorded_env, redact_env(env) if env else {}
        if container is not None:  # a container gets its own variables, and none of the environment
            caller = recorded.get(TRACE_VARIABLE) if setup.has_traces else None
            recorded, added = {} if caller is None else {TRACE_VARIABLE: caller}, redact_params(env)
        params = redact_params(planned.parameters) if planned is not None and planned.parameters else {}
        job = Job(
            uuid=self._new_uuid(),
            argv=self._redact_argv((command,) if is_shell else argv),
            is_shell=is_shell,
            created_at_us=self._context.clock.now_us(),
            name=name,
            tool=os.path.basename(argv[0]) if not is_shell else "sh",
            params=params,
            tags=self._tags
            if planned is None or not planned.label
            else (*self._tags, f"label={planned.label}"),
            label="" if planned is None else planned.label,
            cwd=setup.cwd if container is None else "",
            container=container,
            env={**recorded, **added} if added else recorded,
            env_given=tuple(added),
            requirements=needs,
            enforce=setup.enforce,
            accounting=setup.accounting,
            monitor=self._monitors,
            probes=setup.probes,
            granularity=self._granularity,
            interval_s=self._interval_s,
            grace_s=setup.grace_s,
            early_signal=self._early_signal(planned, needs),
            output_dir=setup.output_dir,
            user=setup.user,
            created_by=self._context.owner,
            run=link,
            inputs=inputs,
            outputs=self._output_paths(planned),
            seeds=self._seeds(argv, params, added),
            gpu_devices=start.gpus if start is not None else (),
            command_digest=command_digest(self._plan, planned) if planned is not None else "",
            limits_resources=execution.limit_resources,
            timeout_exit_code=execution.timeout_exit_code,
            oom_exit_code=execution.oom_exit_code,
            grid_co2_g_per_kwh=setup.grid_co2_g_per_kwh,
        )
        # Its name and tags are made from names that hide secrets already.
        return replace(self._secrets.hide_in_job(job), name=name, tags=job.tags) if self._secrets else job

    def _container(self, planned: PlannedJob) -> ContainerJob | None:
        """Returns its container with absolute paths, or None if it has none or one that needs no engine."""
        if planned.container is None or planned.container.engine == APPTAINER:
            return None
        return with_whole_paths(planned.container, self._setup.cwd)

    def _data_names(self, planned: PlannedJob) -> list[str]:
        return [self._plan.user_data[index].name for index in planned.input_user_data]

    def _output_paths(self, planned: PlannedJob | None) -> tuple[str, ...]:
        if planned is None or not planned.output_files:
            return ()
        return tuple(self._plan.files[index].path for index in planned.output_files)

    def _seeds(self, argv: tuple[str, ...], params: dict[str, Any], env: dict[str, str]) -> dict[str, str]:
        """Returns seeds of the values that may be stored."""
        words = self._secrets.hide(self._redact_argv(argv))
        return seeds_of(words, params, {**self._env_seeds, **env} if env else self._env_seeds)

    def _new_uuid(self) -> str:
        if not self._random:
            self._random = os.urandom(16 * _UUIDS_AT_ONCE)
        first, self._random = self._random[:16], self._random[16:]
        return uuid_of(first)

    def _early_signal(self, planned: PlannedJob | None, needs: Requirements) -> EarlySignal | None:
        """Returns the signal that asks a job to stop before its time limit, at most as early as the reserved
        time: afterwards its allocation is for others."""
        if planned is None or needs.timeout_s is None:
            return None
        if self._srun_signal is not None:  # the same for all jobs
            number, lead_s = self._srun_signal
            return EarlySignal(number, min(lead_s, needs.timeout_s / 2))
        if not planned.supports_termination:
            return None
        lead_s = min(self._plan.execution.sigterm_lead_s, needs.timeout_s / 2)
        return EarlySignal(self._signal, lead_s, is_grace=lead_s > 0)

    # ---- commands beside them ------------------------------------------------------------------------

    def make_action(self, command: RunActionCommand) -> PreparedAttempt:
        action = self._plan.actions[command.action]
        name = f"action-{command.action + 1}.{command.command + 1}"
        return self._auxiliary(name, action.spec.commands[command.command], {})

    def make_worker_actions(self) -> WorkerActions | None:
        """Returns commands that each worker of the run executes, or None if the plan has none."""
        start, complete = (
            tuple(
                self._worker_command(index, action, trigger)
                for index, action in enumerate(self._plan.actions)
            )
            for trigger in (TriggerType.ON_WORKER_START, TriggerType.ON_WORKER_COMPLETE)
        )
        on_start = tuple(command for commands in start for command in commands)
        on_complete = tuple(command for commands in complete for command in commands)
        if not on_start and not on_complete:
            return None
        return WorkerActions(
            run=self._setup.run.uuid, env=self.common_env, on_start=on_start, on_complete=on_complete
        )

    def _worker_command(
        self, index: int, action: PlannedAction, trigger: TriggerType
    ) -> tuple[WorkerCommand, ...]:
        spec = action.spec
        if spec.trigger_type is not trigger or spec.action_type is not ActionType.RUN_COMMANDS:
            return ()
        made = [self.make_action(RunActionCommand(index, number)) for number in range(len(spec.commands))]
        # It belongs to the worker that runs it, and has its environment.
        return tuple(
            WorkerCommand(index, number, replace(one.job, created_by=None, env={}), one.argv, one.folder)
            for number, one in enumerate(made)
        )

    def make_recovery(self, recovery: RunRecovery, exit_code: int | None) -> PreparedAttempt:
        planned = self._plan.jobs[recovery.index]
        code = "" if exit_code is None else str(exit_code)
        env = {
            **self._written_env(planned),
            "JOBLENS_JOB_NAME": planned.name,
            "JOBLENS_ATTEMPT": str(recovery.attempt),
            "JOBLENS_EXIT_CODE": code,
            "TORC_JOB_ID": str(recovery.index + 1),
            "TORC_JOB_NAME": planned.name,
            "TORC_ATTEMPT_ID": str(recovery.attempt),
            "TORC_RETURN_CODE": code,
        }
        return self._auxiliary(f"{planned.name}.recovery-{recovery.attempt}", recovery.script, env)

    def _auxiliary(self, name: str, line: str, env: dict[str, str]) -> PreparedAttempt:
        argv = (self._shell, "-c", line)
        link = RunLink(self._setup.run.uuid, AUXILIARY)
        job = self._job(line, argv, name, link, is_shell=True, env={})
        folder = os.path.join(self._logs_dir, safe_name(name))
        return PreparedAttempt(job, argv, env, folder, "")

    # ---- where it prints -----------------------------------------------------------------------------

    def _folder(self, name: str, attempt: int) -> str:
        own = safe_name(name)
        if attempt == 1:
            return own
        jobs = self._plan.jobs
        self._all_folders.update(safe_name(job.name) for job in jobs[self._folders_known :])
        self._folders_known = len(jobs)  # it may grow
        numbered = f"{own}.{attempt}"
        return numbered if numbered not in self._all_folders else f"{own}.attempt-{attempt}"


def _ids_inside(common_env: Mapping[str, str]) -> dict[str, str]:
    """Returns variables that identify the run, for a container, where paths of the machine are useless."""
    return {name: value for name, value in common_env.items() if name.endswith("_ID") or "NUMBER" in name}


def safe_name(name: str) -> str:
    """Returns a name for a folder; different names never become the same one."""
    if not _UNSAFE.search(name) and not name.startswith(".") and len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    return f"{_UNSAFE.sub('_', name)[:_LONGEST_NAME].lstrip('.')}-{digest}"


def streams_of(stdio: Stdio) -> str:
    return _STREAMS[stdio.mode] + ("d" if stdio.delete_on_success else "")


def signal_number(name: str) -> int:
    import signal

    bare = name.upper().removeprefix("SIG")
    return int(getattr(signal, f"SIG{bare}", signal.SIGTERM))
