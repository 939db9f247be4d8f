"""No key of a workflow file is accepted and then ignored in silence: each is used somewhere, or setting it
gets a warning."""

from pathlib import Path

import pytest

import joblens
from joblens.spec.key_table import Key, Section
from joblens.spec.workflow_keys import SECTIONS

ROOT = Path(joblens.__file__).parent
# Keys for editors and readers only: they say so themselves.
FOR_READERS = {("workflow", "$schema"), ("inline_requirements", "name")}
_AMOUNTS = dict.fromkeys(
    ("num_cpus", "memory", "num_gpus", "num_nodes", "runtime", "cpus", "gpus", "nodes"), "plan/expansion.py"
)
_SWEEP = dict.fromkeys(
    ("parameters", "parameter_mode", "use_parameters", "parameters_file", "use_parameters_file"),
    "plan/sweeps.py",
)
_LINKED = dict.fromkeys(
    (
        "depends_on",
        "blocked_by",
        "depends_on_regexes",
        "input_files",
        "output_files",
        "input_file_regexes",
        "output_file_regexes",
        "input_user_data",
        "output_user_data",
        "input_user_data_regexes",
        "output_user_data_regexes",
        "input_datasets",
        "output_datasets",
    ),
    "plan/linking.py",
)
# The module that uses the value of each key, under the name the model has for it (or the word behind ':').
USED: dict[str, dict[str, str]] = {
    "workflow": {
        "name": "app/workflow_runs.py",
        "jobs": "plan/expansion.py",
        "user": "app/workflow_runs.py",
        "description": "app/workflow_runs.py",
        "project": "app/crates.py",
        "metadata": "app/crates.py",
        "parameters": "plan/sweeps.py",
        "parameters_file": "plan/sweeps.py",
        "variables": "plan/sweeps.py",
        "env": "plan/expansion.py",
        "files": "plan/expansion.py",
        "user_data": "plan/expansion.py",
        "datasets": "plan/expansion.py",
        "resource_requirements": "plan/expansion.py",
        "failure_handlers": "plan/expansion.py",
        "actions": "engine/triggers.py",
        "resource_monitor": "agent/run_attempts.py",
        "execution_config": "agent/run_attempts.py",
        "use_pending_failed": "engine/retries.py",
        "slurm_schedulers": "plan/slurm_terms.py",
        "slurm_defaults": "plan/slurm_terms.py",
        "compute_node_wait_for_new_jobs_seconds": "runners/slurm_placer.py",
        "compute_node_expiration_buffer_seconds": "runners/slurm_placer.py",
        "jobs_sort_method": "engine/order.py",
        "enable_ro_crate": "app/after_run.py",
        "container": "plan/expansion.py",
        "dynamic_jobs": 'plan/spawning.py:"dynamic_jobs"',
    },
    "job": {
        "name": "agent/run_attempts.py",
        "command": "agent/run_commands.py",
        "invocation_script": "agent/run_commands.py",
        "resource_requirements": "engine/shapes.py",
        **_AMOUNTS,
        "failure_handler": "engine/retries.py",
        "scheduler": "agent/run_tickets.py",
        "cancel_on_blocking_job_failure": "engine/job_table.py",
        "supports_termination": "agent/run_attempts.py",
        **_LINKED,
        **_SWEEP,
        "env": "agent/run_attempts.py",
        "priority": "engine/order.py",
        "stdio": "agent/run_attempts.py",
        "label": "agent/run_tickets.py:planned.label",
        "queue": "app/run_engine.py",
        "retry_lost": "agent/run_tickets.py",
        "container": "agent/claimed_jobs.py",
    },
    "file": {"name": "plan/expansion.py", "path": "plan/linking.py", "identifier": "app/crates.py", **_SWEEP},
    "user_data": {"name": "agent/run_facts.py", "data": "agent/run_facts.py", **_SWEEP},
    "dataset": {
        "name": "agent/run_datasets.py",
        "path": "agent/run_datasets.py",
        "hash_mode": "agent/run_datasets.py",
        "description": "app/datasets.py",
        **_SWEEP,
    },
    "resource_requirements": {"name": "plan/expansion.py", **_AMOUNTS},
    "inline_requirements": _AMOUNTS,
    "failure_handler": {"name": "plan/expansion.py", "rules": "engine/retries.py"},
    "rule": {
        **dict.fromkeys(("exit_codes", "match_all_exit_codes"), "model/workflow_spec.py:rule."),
        **dict.fromkeys(
            (
                "recovery_script",
                "max_retries",
                "backoff",
                "backoff_factor",
                "max_backoff",
                "memory_factor",
                "runtime_factor",
            ),
            "engine/retries.py",
        ),
    },
    "action": {
        "trigger_type": "engine/triggers.py",
        "action_type": "engine/triggers.py",
        "jobs": "plan/expansion.py",
        "job_name_regexes": "plan/expansion.py",
        "commands": "agent/run_attempts.py",
        "scheduler": "runners/slurm_placer.py",
        "scheduler_type": "runners/slurm_placer.py",
        "num_allocations": "runners/slurm_placer.py",
        # Always so: srun starts a worker on each node of an allocation.
        "start_one_worker_per_node": "plan/slurm_script.py:srun",
        "max_parallel_jobs": "runners/slurm_placer.py",
        "persistent": "engine/triggers.py",
    },
    "resource_monitor": {
        "enabled": "agent/run_attempts.py",
        "granularity": "app/after_run.py",
        "sample_interval_seconds": "agent/run_attempts.py",
        "generate_plots": "app/after_run.py",
        "jobs": "spec/workflow_values.py",
        "compute_node": "spec/workflow_values.py",
    },
    "monitor_jobs": {"enabled": "agent/run_attempts.py", "granularity": "app/after_run.py"},
    "monitor_compute_node": dict.fromkeys(("enabled", "cpu", "memory"), "app/plotting.py"),
    "execution_config": {
        "mode": "spec/workflow_run_keys.py",  # which keys are allowed beside it
        "sigkill_headroom_seconds": "agent/run_driver.py",
        "timeout_exit_code": "agent/run_attempts.py",
        "staggered_start": "agent/run_starts.py",
        "stdio": "agent/run_attempts.py",
        "limit_resources": "agent/run_attempts.py",
        "termination_signal": "agent/run_attempts.py",
        "sigterm_lead_seconds": "agent/run_attempts.py",
        "oom_exit_code": "agent/run_attempts.py",
        "srun_mpi": "plan/slurm_keys.py",
        "srun_termination_signal": "plan/srun_signal.py",
        "enable_cpu_bind": "plan/slurm_keys.py",
    },
    "stdio": {"mode": "agent/run_attempts.py", "delete_on_success": "agent/run_attempts.py"},
    "slurm_scheduler": dict.fromkeys(
        (
            "name",
            "account",
            "partition",
            "nodes",
            "walltime",
            "mem",
            "gres",
            "qos",
            "ntasks_per_node",
            "tmp",
            "extra",
            "serialize_allocations",
        ),
        "plan/slurm_terms.py",
    ),
    "dynamic_jobs": {"max_iterations": "plan/spawning.py"},
    "container": {
        **dict.fromkeys(("volumes", "devices"), "model/containers.py"),
        **dict.fromkeys(
            ("image", "entrypoint", "name", "engine", "socket", "pull"), "agent/container_making.py"
        ),
        **dict.fromkeys(("network", "user", "workdir"), "agent/container_order.py"),
    },
}
EVERY_KEY = [(section, key) for section in SECTIONS.values() for key in section.keys.values()]


@pytest.mark.parametrize(("section", "key"), EVERY_KEY, ids=lambda one: one.name)
def test_a_key_is_used_or_warned_of(section: Section, key: Key) -> None:
    if (section.name, key.name) in FOR_READERS:
        return
    used = USED[section.name].get(key.name)
    if used is None:
        assert key.no_effect is not None, f"{section.name}.{key.name} has no effect: give it a NoEffect"
        assert key.no_effect.engines == (), "it has an effect with other engines: say where"
        return
    module, _, word = used.partition(":")
    assert (word or key.target) in (ROOT / module).read_text()
    if key.no_effect is not None:
        assert key.no_effect.engines or key.no_effect.only, "it is used and is said to have no effect"


def test_every_use_is_of_a_key_that_exists() -> None:
    known = {section.name: set(section.keys) for section in SECTIONS.values()}
    assert {name: set(keys) - known[name] for name, keys in USED.items() if set(keys) - known[name]} == {}
