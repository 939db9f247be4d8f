"""The long options of sbatch that `slurm_defaults` may set."""

from typing import Any

from joblens.spec.formats.words import nearest_word, shown
from joblens.spec.keys.kinds import Kind, Note, Wrong, expected

# One scheduler or one job decides these; a default for all of them would contradict it.
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
    """Options by their names with underscores; dashes are as good."""
    if type(raw) is not dict:
        expected(Kind.SBATCH, raw)
    options: dict[str, Any] = {}
    finished: list[Note] = []
    for name, value in raw.items():
        option = name.removeprefix("--").replace("-", "_")
        if option in DECIDED_ELSEWHERE:
            message = f"'{name}' cannot stand in slurm_defaults; it belongs in {DECIDED_ELSEWHERE[option]}"
        elif option not in SBATCH_OPTIONS:
            nearest = nearest_word(option, SBATCH_OPTIONS)
            hint = f"; did you mean '{nearest}'?" if nearest else ""
            message = f"sbatch has no option '{name}'{hint}"
        elif isinstance(value, dict | list):
            message = f"{name} in slurm_defaults must be text, a number or true, not {shown(value)}"
        elif option in options:
            message = f"'{name}' in slurm_defaults stands twice"
        else:
            if value is not None:
                options[option] = value
            continue
        finished.append(((name,), message))
    if finished:
        raise Wrong([], finished)
    return options
