"""Workflow as written, in any file format: before parameters are expanded and names resolved.

Every value has been checked by itself (keys, types, units); relations between values (unknown names, cycles,
duplicates after expansion) are checked by `plan`.
"""

import enum
from typing import Any

from msgspec import Struct, field

from joblens.model.jobs.job import Granularity, RetryLost


class ParameterMode(enum.StrEnum):
    PRODUCT = "product"
    ZIP = "zip"


class WhenBlockedFails(enum.StrEnum):
    """Policy for jobs with a dependency that did not succeed (`cancel_on_blocking_job_failure`)."""

    WAIT = "wait"  # key not written: waits until the dependency is run again
    CANCEL = "cancel"  # true
    RUN = "run"  # false: runs anyway


class StdioMode(enum.StrEnum):
    SEPARATE = "separate"
    COMBINED = "combined"
    NO_STDOUT = "no_stdout"
    NO_STDERR = "no_stderr"
    NONE = "none"


class Stdio(Struct, frozen=True, kw_only=True, omit_defaults=True):
    mode: StdioMode = StdioMode.SEPARATE
    delete_on_success: bool = False


class RequirementsSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`resource_requirements`, named at the top or inline in a job. None: not written, so not limited."""

    name: str = ""
    num_cpus: float | None = None
    memory_bytes: int | None = None
    num_gpus: int | None = None
    num_nodes: int | None = None
    runtime_s: float | None = None


class RetryRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule of a failure handler: its exit codes, and actions before the next attempt."""

    exit_codes: tuple[int, ...] = ()
    match_all_exit_codes: bool = False
    recovery_script: str | None = None
    max_retries: int = 3
    backoff_s: float = 0.0  # before the first retry
    backoff_factor: float = 2.0  # growth with each further retry
    max_backoff_s: float = 3600.0
    memory_factor: float = 1.0  # increases for the next attempt
    runtime_factor: float = 1.0


class FailureHandler(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    rules: tuple[RetryRule, ...] = ()

    def rule_for(self, exit_code: int | None) -> RetryRule | None:
        """Returns the first rule that lists the exit code, otherwise the first for all codes. None stands for
        a failure without an exit code."""
        for rule in self.rules:
            if exit_code is not None and exit_code in rule.exit_codes:
                return rule
        return next((rule for rule in self.rules if rule.match_all_exit_codes), None)


class FileSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    path: str
    st_mtime: float | None = None
    identifier: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    parameter_mode: ParameterMode = ParameterMode.PRODUCT
    use_parameters: tuple[str, ...] | None = None
    parameters_file: str | None = None
    use_parameters_file: bool = False


class UserDataSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str = ""
    data: Any = None
    is_ephemeral: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)
    parameter_mode: ParameterMode = ParameterMode.PRODUCT
    use_parameters: tuple[str, ...] | None = None
    parameters_file: str | None = None
    use_parameters_file: bool = False


class HashMode(enum.StrEnum):
    """How changes of a dataset are detected: by names, sizes and times of its files, by their content, or
    not at all."""

    MANIFEST = "manifest"
    CONTENT = "content"
    NONE = "none"


class DatasetSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    path: str
    hash_mode: HashMode = HashMode.MANIFEST
    description: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    parameter_mode: ParameterMode = ParameterMode.PRODUCT
    use_parameters: tuple[str, ...] | None = None
    parameters_file: str | None = None
    use_parameters_file: bool = False


class TriggerType(enum.StrEnum):
    ON_WORKFLOW_START = "on_workflow_start"
    ON_WORKFLOW_COMPLETE = "on_workflow_complete"
    ON_JOBS_READY = "on_jobs_ready"
    ON_JOBS_COMPLETE = "on_jobs_complete"
    ON_WORKER_START = "on_worker_start"
    ON_WORKER_COMPLETE = "on_worker_complete"


WORKER_TRIGGERS = (TriggerType.ON_WORKER_START, TriggerType.ON_WORKER_COMPLETE)
# Triggers that cannot request nodes: the workflow is complete, or a worker already exists.
NO_NODES = (TriggerType.ON_WORKFLOW_COMPLETE, *WORKER_TRIGGERS)


class ActionType(enum.StrEnum):
    RUN_COMMANDS = "run_commands"
    SCHEDULE_NODES = "schedule_nodes"  # of Slurm


class ActionSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    trigger_type: TriggerType
    action_type: ActionType
    jobs: tuple[str, ...] = ()
    job_name_regexes: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    scheduler: str | None = None
    scheduler_type: str | None = None
    num_allocations: int | None = None
    start_one_worker_per_node: bool = False
    max_parallel_jobs: int | None = None
    persistent: bool = False


class MonitorSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`resource_monitor`, flat or nested."""

    enabled: bool = True
    granularity: Granularity = Granularity.SUMMARY
    sample_interval_s: float = 5.0
    flush_interval_s: float | None = None
    generate_plots: bool = False
    host_enabled: bool = True  # compute_node
    host_granularity: Granularity = Granularity.SUMMARY
    host_cpu: bool = True
    host_memory: bool = True


class ExecutionSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`execution_config`. Keys of other modes are rejected."""

    mode: str = "direct"  # direct, slurm, auto
    sigkill_headroom_s: float = 60.0
    timeout_exit_code: int = 152
    staggered_start_s: float = 0.0
    stdio: Stdio = Stdio()
    limit_resources: bool = True
    termination_signal: str = "SIGTERM"
    sigterm_lead_s: float = 30.0
    oom_exit_code: int = 137
    srun_mpi: str | None = None
    srun_termination_signal: str | None = None
    enable_cpu_bind: bool | None = None


class JobSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    command: str
    invocation_script: str | None = None
    requirements: "str | RequirementsSpec | None" = None  # a name, or inline
    failure_handler: str | None = None
    scheduler: str | None = None
    when_blocked_fails: WhenBlockedFails = WhenBlockedFails.WAIT
    supports_termination: bool = False
    depends_on: tuple[str, ...] = ()  # alias: `blocked_by`
    depends_on_regexes: tuple[str, ...] = ()
    input_files: tuple[str, ...] = ()
    output_files: tuple[str, ...] = ()
    input_file_regexes: tuple[str, ...] = ()
    output_file_regexes: tuple[str, ...] = ()
    input_user_data: tuple[str, ...] = ()
    output_user_data: tuple[str, ...] = ()
    input_user_data_regexes: tuple[str, ...] = ()
    output_user_data_regexes: tuple[str, ...] = ()
    input_datasets: tuple[str, ...] = ()
    output_datasets: tuple[str, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    parameter_mode: ParameterMode = ParameterMode.PRODUCT
    use_parameters: tuple[str, ...] | None = None
    parameters_file: str | None = None
    use_parameters_file: bool = False
    env: dict[str, str] = field(default_factory=dict)
    priority: int = 0
    stdio: Stdio | None = None
    label: str | None = None
    queue: str | None = None
    retry_lost: RetryLost | None = None
    container: dict[str, Any] | None = None  # fields of ContainerJob; {}: none, despite a default


class WorkflowSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    jobs: tuple[JobSpec, ...]
    user: str | None = None
    description: str | None = None
    project: str | None = None
    metadata: Any = None
    parameters: dict[str, Any] = field(default_factory=dict)
    parameters_file: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    container: dict[str, Any] | None = None  # default of jobs
    files: tuple[FileSpec, ...] = ()
    user_data: tuple[UserDataSpec, ...] = ()
    datasets: tuple[DatasetSpec, ...] = ()
    requirements: tuple[RequirementsSpec, ...] = ()
    failure_handlers: tuple[FailureHandler, ...] = ()
    actions: tuple[ActionSpec, ...] = ()
    monitor: MonitorSpec = MonitorSpec()
    execution: ExecutionSpec = ExecutionSpec()
    use_pending_failed: bool = False
    # Read, checked and stored for engines that use them.
    slurm_schedulers: tuple[dict[str, Any], ...] = ()
    slurm_defaults: dict[str, Any] = field(default_factory=dict)
    other: dict[str, Any] = field(default_factory=dict)  # compute_node_*, jobs_sort_method, dynamic_jobs, …
