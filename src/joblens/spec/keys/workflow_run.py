"""Keys about running a workflow: actions, monitoring, execution, Slurm and options of sbatch."""

from typing import Any

from joblens.model.jobs.job import Granularity
from joblens.model.runs.workflow_spec import ActionType, StdioMode, TriggerType
from joblens.spec.formats.positions import nearest_word, shown
from joblens.spec.keys.kinds import Kind, Note, Wrong, expected
from joblens.spec.keys.table import NOT_SLURM, Need, NoEffect, choice, flag, key, required, section

SHORTEST_INTERVAL_S = 0.05

_OF_JOBS = (TriggerType.ON_JOBS_READY.value, TriggerType.ON_JOBS_COMPLETE.value)
_RUN = (ActionType.RUN_COMMANDS.value,)
_SCHEDULE = (ActionType.SCHEDULE_NODES.value,)
_DIRECT = ("direct", "auto")
_SLURM = ("slurm", "auto")

ACTION = section(
    "action",
    "an action",
    "an entry of `actions`",
    choice("trigger_type", TriggerType, "Trigger.", is_required=True),
    choice(
        "action_type",
        ActionType,
        "What happens.",
        is_required=True,
        no_effect=NoEffect(why="only for --engine slurm", engines=NOT_SLURM, only=_SCHEDULE),
    ),
    key(
        "jobs",
        Kind.NAMES,
        "Jobs that must all be ready or complete.",
        only_with=("trigger_type", _OF_JOBS),
        warns_elsewhere=True,
    ),
    key(
        "job_name_regexes",
        Kind.REGEXES,
        "The same by patterns of names.",
        only_with=("trigger_type", _OF_JOBS),
        warns_elsewhere=True,
    ),
    key(
        "commands",
        Kind.COMMANDS,
        "Commands to run, one after the other.",
        only_with=("action_type", _RUN),
        warns_elsewhere=True,
    ),
    key(
        "scheduler",
        Kind.REFERENCE,
        "Slurm scheduler to use.",
        only_with=("action_type", _SCHEDULE),
        warns_elsewhere=True,
    ),
    choice(
        "scheduler_type",
        ("slurm", "local"),
        "System that provides nodes.",
        only_with=("action_type", _SCHEDULE),
        warns_elsewhere=True,
    ),
    key(
        "num_allocations",
        Kind.INT,
        "Number of allocations to request.",
        least=1,
        only_with=("action_type", _SCHEDULE),
        warns_elsewhere=True,
    ),
    flag(
        "start_one_worker_per_node",
        "Start one worker on each node of an allocation.",
        only_with=("action_type", _SCHEDULE),
        warns_elsewhere=True,
    ),
    key(
        "max_parallel_jobs",
        Kind.INT,
        "Maximum number of parallel jobs per node.",
        least=1,
        only_with=("action_type", _SCHEDULE),
        warns_elsewhere=True,
    ),
    flag(
        "persistent",
        "May run again: when its jobs are ready or end once more, or after a resume.",
    ),
    needs=(
        Need("trigger_type", _OF_JOBS, ("jobs", "job_name_regexes")),
        Need("action_type", _RUN, ("commands",)),
        Need("action_type", _SCHEDULE, ("scheduler", "scheduler_type")),
    ),
)

RESOURCE_MONITOR = section(
    "resource_monitor",
    "resource_monitor",
    "`resource_monitor`",
    flag("enabled", "Measure jobs while they run.", default=True),
    choice(
        "granularity",
        Granularity,
        "time_series also writes a database of all samples to the output directory.",
        default="summary",
    ),
    key(
        "sample_interval_seconds",
        Kind.DURATION,
        "Sampling interval.",
        default=5,
        field="sample_interval_s",
        least=SHORTEST_INTERVAL_S,
    ),
    key(
        "flush_interval_seconds",
        Kind.DURATION,
        "Maximum time samples are buffered in memory.",
        field="flush_interval_s",
        least=0,
        no_effect=NoEffect(why="samples are stored within seconds", same_as_absent=(300,)),
    ),
    flag("generate_plots", "Draw the plots at the end of the run."),
    key("jobs", Kind.SECTION, "The same for jobs only; overrides the keys above.", section="monitor_jobs"),
    key(
        "compute_node",
        Kind.SECTION,
        "Measurements of the machine.",
        section="monitor_compute_node",
    ),
    warns_of_unknown=True,
)

MONITOR_JOBS = section(
    "monitor_jobs",
    "resource_monitor.jobs",
    "`jobs` of `resource_monitor`",
    flag("enabled", "Measure jobs while they run.", default=True),
    choice("granularity", Granularity, "summary or time_series.", default="summary"),
    warns_of_unknown=True,
)

MONITOR_COMPUTE_NODE = section(
    "monitor_compute_node",
    "resource_monitor.compute_node",
    "`compute_node` of `resource_monitor`",
    flag(
        "enabled",
        "Add the machine's numbers to the database of time_series.",
        default=True,
        field="host_enabled",
    ),
    choice(
        "granularity",
        Granularity,
        "summary or time_series.",
        default="summary",
        field="host_granularity",
        no_effect=NoEffect(
            why="its numbers are stored with the samples of jobs, as resource_monitor.granularity says",
            same_as_absent=("summary",),
        ),
    ),
    flag("cpu", "Include CPU.", default=True, field="host_cpu"),
    flag("memory", "Include memory.", default=True, field="host_memory"),
    warns_of_unknown=True,
)

EXECUTION_CONFIG = section(
    "execution_config",
    "execution_config",
    "`execution_config`",
    choice(
        "mode",
        ("direct", "slurm", "auto"),
        "Which of the keys below are allowed. joblens starts jobs itself in every mode.",
        default="direct",
        no_effect=NoEffect(
            why="joblens starts jobs itself; with --engine slurm, in allocations of Slurm", only=("slurm",)
        ),
    ),
    key(
        "sigkill_headroom_seconds",
        Kind.DURATION,
        "Time before the end of an allocation at which jobs are killed.",
        default=60,
        field="sigkill_headroom_s",
        least=0,
    ),
    key(
        "timeout_exit_code",
        Kind.INT,
        "Return code of jobs that ran out of time.",
        default=152,
        least=1,
        most=255,
    ),
    key(
        "staggered_start",
        Kind.STAGGER,
        "Delay between the starts of two jobs. true and false are about nodes of a cluster.",
        default=0,
        field="staggered_start_s",
    ),
    key("stdio", Kind.SECTION, "Where output goes.", section="stdio"),
    flag(
        "limit_resources",
        "Enforce the requirements of jobs as limits.",
        default=True,
        only_with=("mode", _DIRECT),
    ),
    key(
        "termination_signal",
        Kind.SIGNAL,
        "Signal that asks a job to end.",
        default="SIGTERM",
        only_with=("mode", _DIRECT),
    ),
    key(
        "sigterm_lead_seconds",
        Kind.DURATION,
        "How long before its time limit a job gets that signal.",
        default=30,
        field="sigterm_lead_s",
        least=0,
        only_with=("mode", _DIRECT),
    ),
    key(
        "oom_exit_code",
        Kind.INT,
        "Return code of jobs that ran out of memory.",
        default=137,
        least=1,
        most=255,
        only_with=("mode", _DIRECT),
    ),
    key(
        "srun_mpi",
        Kind.OPTION_WORD,
        "srun's --mpi for jobs of several nodes.",
        only_with=("mode", _DIRECT),
        no_effect=NoEffect(why="only for --engine slurm", engines=NOT_SLURM),
    ),
    key(
        "srun_termination_signal", Kind.TEXT, "srun's --signal, such as TERM@120.", only_with=("mode", _SLURM)
    ),
    flag(
        "enable_cpu_bind",
        "Let srun bind jobs to CPUs.",
        default=None,
        only_with=("mode", _SLURM),
        no_effect=NoEffect(why="only for --engine slurm", engines=NOT_SLURM),
    ),
)

STDIO = section(
    "stdio",
    "stdio",
    "`stdio` of a job or of `execution_config`",
    choice(
        "mode",
        StdioMode,
        "Two files, one file, or without one or both of the streams.",
        default="separate",
    ),
    flag("delete_on_success", "Remove the files of a successful job."),
)

SLURM_SCHEDULER = section(
    "slurm_scheduler",
    "Slurm scheduler",
    "an entry of `slurm_schedulers`",
    key("name", Kind.LONG_NAME, "Name that jobs and actions refer to."),
    required("account", Kind.TEXT, "Account to charge."),
    key("partition", Kind.TEXT, "Partition to use."),
    key("nodes", Kind.INT, "Nodes per allocation.", default=1, least=1),
    key("walltime", Kind.WALLTIME, "Time limit of an allocation.", default="01:00:00"),
    key("mem", Kind.SLURM_MEMORY, "Memory per node.", example="180G"),
    key("gres", Kind.TEXT, "Generic resources.", example="gpu:2"),
    key("qos", Kind.TEXT, "Quality of service."),
    key("ntasks_per_node", Kind.INT, "Tasks per node.", least=1),
    key("tmp", Kind.TEXT, "Local disk per node."),
    key("extra", Kind.TEXT, "More sbatch options, as one text."),
    flag("serialize_allocations", "One allocation at a time.", default=None),
)

DYNAMIC_JOBS = section(
    "dynamic_jobs",
    "dynamic_jobs",
    "`dynamic_jobs`",
    key(
        "max_iterations",
        Kind.INT,
        "Maximum number of times each lineage may add jobs.",
        default=1000,
        least=1,
    ),
)


# A scheduler or a job sets these; a default for all would contradict it.
DECIDED_ELSEWHERE = {
    "partition": "slurm_schedulers",
    "nodes": "slurm_schedulers",
    "walltime": "slurm_schedulers",
    "time": "slurm_schedulers, as 'walltime'",
    "mem": "slurm_schedulers",
    "gres": "slurm_schedulers",
    "name": "slurm_schedulers",
    "job_name": "slurm_schedulers, as 'name'",
}

_WORDS = """
    account acctg_freq array batch bb bbf begin bell burst_buffer chdir cluster cluster_constraint clusters
    comment constraint container container_id contiguous core_spec cores_per_socket cpu_freq cpus_per_gpu
    cpus_per_task deadline delay_boot dependency distribution error exclude exclusive export export_file extra
    extra_node_info get_user_env gpu_bind gpu_freq gpus gpus_per_node gpus_per_socket gpus_per_task gres_flags
    hint hold ignore_pbs immediate input kill_on_invalid_dep licenses mail_type mail_user mcs_label
    mem_bind mem_per_cpu mem_per_gpu mincpus network nice no_bell no_kill no_requeue nodefile nodelist
    ntasks ntasks_per_core ntasks_per_gpu ntasks_per_node ntasks_per_socket open_mode output overcommit
    oversubscribe parsable power prefer priority profile propagate qos quiet reboot requeue reservation
    resv_ports segment signal sockets_per_node spread_job spread_segments stepmgr switches test_only
    thread_spec threads_per_core time_min tmp tres_bind tres_per_task uid gid umask use_min_nodes verbose
    wait wait_all_nodes wckey wrap
"""
SBATCH_OPTIONS = frozenset(_WORDS.split())


def read_sbatch_options(raw: Any) -> dict[str, Any]:
    """Parses options by name, with underscores or dashes."""
    if type(raw) is not dict:
        expected(Kind.SBATCH, raw)
    options: dict[str, Any] = {}
    finished: list[Note] = []
    for name, value in raw.items():
        option = name.removeprefix("--").replace("-", "_")
        if option in DECIDED_ELSEWHERE:
            message = f"'{name}' is not allowed in slurm_defaults; it belongs in {DECIDED_ELSEWHERE[option]}"
        elif option not in SBATCH_OPTIONS:
            nearest = nearest_word(option, SBATCH_OPTIONS)
            hint = f"; did you mean '{nearest}'?" if nearest else ""
            message = f"sbatch has no option '{name}'{hint}"
        elif isinstance(value, dict | list):
            message = f"{name} in slurm_defaults must be text, a number or true, not {shown(value)}"
        elif option in options:
            message = f"duplicate key '{name}' in slurm_defaults"
        else:
            if value is not None:
                options[option] = value
            continue
        finished.append(((name,), message))
    if finished:
        raise Wrong([], finished)
    return options
