"""All keys of a workflow file: section, kind, default, description.

Used by the reader, the JSON Schema and docs/spec.md; `SECTIONS` has all of them.
"""

from joblens.model.jobs.containers import ENGINES
from joblens.model.jobs.job import RetryLost
from joblens.model.runs.workflow_spec import HashMode, ParameterMode
from joblens.spec.keys.kinds import Kind
from joblens.spec.keys.table import (
    NOT_CELERY,
    NOT_SLURM,
    WITHOUT_NODES,
    NoEffect,
    Section,
    choice,
    flag,
    key,
    required,
    section,
)
from joblens.spec.keys.workflow_run import (
    ACTION,
    DYNAMIC_JOBS,
    EXECUTION_CONFIG,
    MONITOR_COMPUTE_NODE,
    MONITOR_JOBS,
    RESOURCE_MONITOR,
    SLURM_SCHEDULER,
    STDIO,
)

_ONE_MACHINE = NoEffect(
    why="the job runs on one machine; --engine slurm or ray gives it several nodes",
    engines=WITHOUT_NODES,
    same_as_absent=(1, "1"),
)
_FOR_SLURM = NoEffect(why="only for --engine slurm", engines=NOT_SLURM)
_AMOUNTS = (
    key("num_cpus", Kind.NUMBER, "CPUs it needs; also the limit.", more_than=0, example=4),
    key("memory", Kind.SIZE, "Memory it needs; also the limit.", field="memory_bytes", example="8g"),
    key("num_gpus", Kind.INT, "GPUs for its exclusive use.", least=0, example=1),
    key("num_nodes", Kind.INT, "Nodes it spans, with Slurm or Ray.", least=1, no_effect=_ONE_MACHINE),
    key(
        "runtime",
        Kind.DURATION,
        "Time limit.",
        field="runtime_s",
        more_than=0,
        example="PT30M",
    ),
    key("cpus", Kind.NUMBER, "Older name of num_cpus.", older_name_of="num_cpus", more_than=0),
    key("gpus", Kind.INT, "Older name of num_gpus.", older_name_of="num_gpus", least=0),
    key(
        "nodes",
        Kind.INT,
        "Older name of num_nodes.",
        older_name_of="num_nodes",
        least=1,
        no_effect=_ONE_MACHINE,
    ),
)
AMOUNT_NAMES = tuple(one.name for one in _AMOUNTS)

_SWEEP = (
    key("parameters", Kind.PARAMETERS, "Values; one entry is created for each.", example={"i": "1:100"}),
    choice(
        "parameter_mode",
        ParameterMode,
        "product: all combinations of values; zip: the first of each, the second of each, and so on.",
        default="product",
    ),
    key("use_parameters", Kind.NAMES, "Shared parameters to use."),
    key("parameters_file", Kind.PATH, "Table (CSV, JSON or JSONL); one entry is created for each row."),
    flag("use_parameters_file", "Create one entry for each row of the workflow's parameters_file."),
)
_INLINE_SWEEP = ("parameters", "parameter_mode", "use_parameters")
_ONE_SWEEP = (
    ("parameters_file", (*_INLINE_SWEEP, "use_parameters_file")),
    ("use_parameters_file", _INLINE_SWEEP),
)

WORKFLOW = section(
    "workflow",
    "the workflow",
    "the top of the file",
    required("name", Kind.NAME, "Name of the workflow.", example="training"),
    required("jobs", Kind.SECTIONS, "Jobs, at least one.", section="job"),
    key("user", Kind.TEXT, "Owner."),
    key("description", Kind.TEXT, "Description."),
    key("project", Kind.TEXT, "Project; included in the RO-Crate of a run."),
    key("metadata", Kind.METADATA, "Mapping, or JSON text of one; included in the RO-Crate of a run."),
    key(
        "parameters",
        Kind.PARAMETERS,
        "Shared parameters, for jobs and files that list them in use_parameters.",
    ),
    key("parameters_file", Kind.PATH, "Table (CSV, JSON or JSONL) for entries with use_parameters_file."),
    key("variables", Kind.VARIABLES, "Texts that replace {name} everywhere.", example={"data": "/srv/data"}),
    key("env", Kind.ENV, "Environment of all jobs."),
    key(
        "container",
        Kind.CONTAINER,
        "Default container of jobs: an image, or a mapping.",
        section="container",
        example="python:3.12-slim",
    ),
    key("files", Kind.SECTIONS, "Files that jobs read and write.", section="file"),
    key("user_data", Kind.SECTIONS, "JSON values that jobs pass to each other.", section="user_data"),
    key("datasets", Kind.SECTIONS, "Directories that jobs fill and read.", section="dataset"),
    key(
        "resource_requirements",
        Kind.SECTIONS,
        "Requirements that jobs refer to by name.",
        section="resource_requirements",
        field="requirements",
    ),
    key("failure_handlers", Kind.SECTIONS, "Handling of failed jobs.", section="failure_handler"),
    key("actions", Kind.SECTIONS, "Actions at points of the run.", section="action"),
    key(
        "resource_monitor",
        Kind.SECTION,
        "How jobs are measured.",
        section="resource_monitor",
        field="monitor",
    ),
    key(
        "execution_config",
        Kind.SECTION,
        "How jobs are started and stopped.",
        section="execution_config",
        field="execution",
    ),
    flag(
        "use_pending_failed", "Jobs that fail without a matching rule wait for a decision instead of failing."
    ),
    key(
        "slurm_schedulers",
        Kind.SECTIONS,
        "Slurm allocations to request.",
        section="slurm_scheduler",
        no_effect=_FOR_SLURM,
    ),
    key(
        "slurm_defaults",
        Kind.SBATCH,
        "sbatch options for all allocations, by their long names.",
        example={"account": "physics", "qos": "high"},
        no_effect=_FOR_SLURM,
    ),
    key(
        "compute_node_wait_for_new_jobs_seconds",
        Kind.DURATION,
        "How long an idle node waits for more jobs.",
        least=0,
        no_effect=_FOR_SLURM,
    ),
    flag(
        "compute_node_ignore_workflow_completion",
        "Keep nodes when the workflow is complete.",
        default=None,
        no_effect=NoEffect(why="allocations serve one run and end with it"),
    ),
    key(
        "compute_node_wait_for_healthy_database_minutes",
        Kind.NUMBER,
        "Minutes a node continues without the store.",
        least=0,
        no_effect=NoEffect(why="workers continue without the store as long as their allocation lasts"),
    ),
    key(
        "compute_node_expiration_buffer_seconds",
        Kind.DURATION,
        "Time before the end of an allocation at which no more jobs are started.",
        least=0,
        no_effect=_FOR_SLURM,
    ),
    choice(
        "jobs_sort_method",
        ("none", "gpus_runtime_memory", "gpus_memory_runtime"),
        "Order of ready jobs of equal priority: as written, or largest first. Default: longest chains first.",
    ),
    key("dynamic_jobs", Kind.SECTION, "Jobs that add jobs to the run.", section="dynamic_jobs"),
    flag(
        "enable_ro_crate",
        "Write an RO-Crate of the run to the output directory when it ends.",
        default=None,
    ),
    key(
        "access_groups",
        Kind.NAMES,
        "Groups that may see the workflow.",
        no_effect=NoEffect(why="everyone who can read the store sees its workflows"),
    ),
    key("$schema", Kind.TEXT, "Where editors find the JSON Schema; ignored by joblens."),
    excludes=(("parameters_file", ("parameters",)),),
    free_prefix="x-",
)

JOB = section(
    "job",
    "job",
    "an entry of `jobs`",
    required("name", Kind.NAME, "Unique name.", example="train_{i}"),
    required("command", Kind.COMMAND, "Command to run.", example="python train.py --seed {i}"),
    key("invocation_script", Kind.TEXT, "Script that sets up the environment, put before the command."),
    key(
        "resource_requirements",
        Kind.REQUIREMENTS,
        "Name of requirements, or the amounts themselves.",
        section="inline_requirements",
        field="requirements",
        example="large",
    ),
    *_AMOUNTS,
    key("failure_handler", Kind.REFERENCE, "Name of its failure handler."),
    key("scheduler", Kind.REFERENCE, "Name of its Slurm scheduler.", no_effect=_FOR_SLURM),
    key(
        "cancel_on_blocking_job_failure",
        Kind.WHEN_BLOCKED_FAILS,
        "If a dependency fails: true cancels the job, false runs it anyway. Default: it stays blocked.",
        field="when_blocked_fails",
    ),
    flag("supports_termination", "It shuts down cleanly on the termination signal."),
    key("depends_on", Kind.NAMES, "Jobs that must succeed first.", example=["prepare"]),
    key("blocked_by", Kind.NAMES, "Older name of depends_on.", older_name_of="depends_on"),
    key("depends_on_regexes", Kind.REGEXES, "The same by patterns of names.", example=["^part_"]),
    key("input_files", Kind.NAMES, "Files it reads: jobs that write them come first."),
    key("output_files", Kind.NAMES, "Files it writes."),
    key("input_file_regexes", Kind.REGEXES, "Files it reads, by patterns of names."),
    key("output_file_regexes", Kind.REGEXES, "Files it writes, by patterns of names."),
    key("input_user_data", Kind.NAMES, "User data it reads: jobs that write them come first."),
    key("output_user_data", Kind.NAMES, "User data it writes."),
    key("input_user_data_regexes", Kind.REGEXES, "User data it reads, by patterns of names."),
    key("output_user_data_regexes", Kind.REGEXES, "User data it writes, by patterns of names."),
    key("input_datasets", Kind.NAMES, "Datasets it reads: all jobs that fill them come first."),
    key("output_datasets", Kind.NAMES, "Datasets it fills, alone or with others."),
    *_SWEEP,
    key("env", Kind.ENV, "Environment of this job; overrides the workflow's."),
    key(
        "container",
        Kind.CONTAINER,
        "Container: an image, or a mapping; false: none, whatever the workflow says.",
        section="container",
        example={"image": "python:3.12-slim", "volumes": [".:/work"], "workdir": "/work"},
    ),
    key("priority", Kind.INT, "Ready jobs with a higher priority start first.", default=0),
    key("stdio", Kind.SECTION, "Where its output goes. Default: as in execution_config.", section="stdio"),
    key(
        "label", Kind.LABEL, "Only workers with this label run it; without one, only workers without a label."
    ),
    key(
        "queue",
        Kind.TEXT,
        "Queue of its workers.",
        no_effect=NoEffect(why="only for --engine celery", engines=NOT_CELERY),
    ),
    choice(
        "retry_lost",
        RetryLost,
        "If its worker or driver is lost: safe reruns it; never ends it as lost.",
    ),
    excludes=(
        *_ONE_SWEEP,
        ("resource_requirements", AMOUNT_NAMES),
    ),
)

CONTAINER = section(
    "container",
    "container",
    "`container`",
    required("image", Kind.PATH, "The image.", example="python:3.12-slim"),
    choice("engine", ENGINES, "Container engine. Default: docker or podman, the first that answers."),
    key("volumes", Kind.WORDS, "SOURCE:TARGET or SOURCE:TARGET:ro; sources relative to the run's directory."),
    key("devices", Kind.WORDS, "Devices of the machine: /dev/dri."),
    key("network", Kind.TEXT, "Network in the engine's terms: none, host, bridge or a name."),
    key("user", Kind.TEXT, "User inside: NAME or UID[:GID]."),
    key("workdir", Kind.PATH, "Working directory inside."),
    key("entrypoint", Kind.TEXT, "Replaces the image's own entry point."),
    key("name", Kind.TEXT, "Name of the container. Default: chosen by the engine."),
    key("socket", Kind.PATH, "Address of the engine."),
    flag("pull", "Pull the image if the engine does not have it."),
)

FILE = section(
    "file",
    "file",
    "an entry of `files`",
    required("name", Kind.LONG_NAME, "Name that jobs refer to.", example="model_{i}"),
    required("path", Kind.PATH, "Path.", example="out/model_{i}.pt"),
    key(
        "st_mtime",
        Kind.NUMBER,
        "Modification time, in seconds since 1970.",
        least=0,
        no_effect=NoEffect(why="joblens reads the file's own time"),
    ),
    key("identifier", Kind.TEXT, "Identifier elsewhere, such as a DOI; included in the RO-Crate of a run."),
    *_SWEEP,
    excludes=_ONE_SWEEP,
)

USER_DATA = section(
    "user_data",
    "user data",
    "an entry of `user_data`",
    key("name", Kind.LONG_NAME, "Name that jobs refer to."),
    key("data", Kind.JSON, "Initial value; none: a job writes it."),
    flag(
        "is_ephemeral",
        "Written again in every run.",
        no_effect=NoEffect(
            why="each run has its own values; a rerun keeps those of jobs that do not run again"
        ),
    ),
    *_SWEEP,
    excludes=_ONE_SWEEP,
)

DATASET = section(
    "dataset",
    "dataset",
    "an entry of `datasets`",
    required("name", Kind.LONG_NAME, "Name that jobs refer to.", example="parts"),
    required("path", Kind.PATH, "The directory.", example="out/parts/"),
    choice(
        "hash_mode",
        HashMode,
        "How changes are detected: names, sizes and times of files; their content; not at all.",
        default="manifest",
    ),
    key("description", Kind.TEXT, "Note."),
    *_SWEEP,
    excludes=_ONE_SWEEP,
)

REQUIREMENTS = section(
    "resource_requirements",
    "resource requirements",
    "an entry of `resource_requirements`",
    required("name", Kind.REQUIREMENTS_NAME, "Name that jobs refer to.", example="large"),
    *_AMOUNTS,
)

INLINE_REQUIREMENTS = section(
    "inline_requirements",
    "resource_requirements",
    "`resource_requirements` of a job",
    key("name", Kind.REQUIREMENTS_NAME, "Name, for readers."),
    *_AMOUNTS,
)

FAILURE_HANDLER = section(
    "failure_handler",
    "failure handler",
    "an entry of `failure_handlers`",
    required("name", Kind.LONG_NAME, "Name that jobs refer to.", example="retry"),
    required(
        "rules",
        Kind.SECTIONS,
        "Rules by exit code: rules that list it come first, then match_all_exit_codes.",
        section="rule",
    ),
)

RULE = section(
    "rule",
    "a rule",
    "an entry of `rules` of a failure handler",
    key("exit_codes", Kind.EXIT_CODES, "Exit codes it applies to.", example=[1, 137]),
    flag("match_all_exit_codes", "Apply to every exit code except 0."),
    key("recovery_script", Kind.COMMAND, "Command to run before the next attempt."),
    key("max_retries", Kind.INT, "Retries.", default=3, least=0),
    key(
        "backoff",
        Kind.DURATION,
        "Delay before the first retry.",
        default=0,
        field="backoff_s",
        least=0,
        example="10s",
    ),
    key("backoff_factor", Kind.NUMBER, "Factor by which the delay grows per retry.", default=2, least=1),
    key("max_backoff", Kind.DURATION, "Longest wait.", default="1h", field="max_backoff_s", least=0),
    key(
        "memory_factor",
        Kind.NUMBER,
        "Factor by which memory grows per retry.",
        default=1,
        least=1,
        example=1.5,
    ),
    key(
        "runtime_factor",
        Kind.NUMBER,
        "Factor by which runtime grows per retry.",
        default=1,
        least=1,
        example=1.5,
    ),
    needs_any=("exit_codes", "match_all_exit_codes"),
)

SECTIONS: dict[str, Section] = {
    one.name: one
    for one in (
        WORKFLOW,
        JOB,
        CONTAINER,
        FILE,
        USER_DATA,
        DATASET,
        REQUIREMENTS,
        INLINE_REQUIREMENTS,
        FAILURE_HANDLER,
        RULE,
        ACTION,
        RESOURCE_MONITOR,
        MONITOR_JOBS,
        MONITOR_COMPUTE_NODE,
        EXECUTION_CONFIG,
        STDIO,
        SLURM_SCHEDULER,
        DYNAMIC_JOBS,
    )
}
