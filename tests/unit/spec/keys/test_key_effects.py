"""No key of a workflow file is accepted and then ignored in silence: each is used somewhere, or setting it
gets a warning."""

from pathlib import Path

import pytest

import joblens
from joblens.spec.keys.table import Key, Section
from joblens.spec.keys.workflow import SECTIONS

ROOT = Path(joblens.__file__).parent
# Keys for editors and readers only: they say so themselves.
FOR_READERS = {("workflow", "$schema"), ("inline_requirements", "name")}
_AMOUNTS = dict.fromkeys(
    ("num_cpus", "memory", "num_gpus", "num_nodes", "runtime", "cpus", "gpus", "nodes"),
    "plan/workflows/expansion.py",
)
_SWEEP = dict.fromkeys(
    ("parameters", "parameter_mode", "use_parameters", "parameters_file", "use_parameters_file"),
    "plan/workflows/sweeps.py",
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
    "plan/workflows/linking.py",
)
# The module that uses the value of each key, under the name the model has for it (or the word behind ':').
USED: dict[str, dict[str, str]] = {
    "workflow": {
        "name": "app/runs/records.py",
        "jobs": "plan/workflows/expansion.py",
        "user": "app/runs/records.py",
        "description": "app/runs/records.py",
        "project": "app/crates/collection.py",
        "metadata": "app/crates/collection.py",
        "parameters": "plan/workflows/sweeps.py",
        "parameters_file": "plan/workflows/sweeps.py",
        "variables": "plan/workflows/sweeps.py",
        "env": "plan/workflows/expansion.py",
        "files": "plan/workflows/expansion.py",
        "user_data": "plan/workflows/expansion.py",
        "datasets": "plan/workflows/expansion.py",
        "resource_requirements": "plan/workflows/expansion.py",
        "failure_handlers": "plan/workflows/expansion.py",
        "actions": "engine/schedule/triggers.py",
        "resource_monitor": "agent/attempts/preparation.py",
        "execution_config": "agent/attempts/preparation.py",
        "use_pending_failed": "engine/schedule/retries.py",
        "slurm_schedulers": "runners/slurm/terms.py",
        "slurm_defaults": "runners/slurm/terms.py",
        "compute_node_wait_for_new_jobs_seconds": "runners/slurm/backend.py",
        "compute_node_expiration_buffer_seconds": "runners/slurm/backend.py",
        "jobs_sort_method": "engine/schedule/ready_queue.py",
        "enable_ro_crate": "app/driving/outputs.py",
        "container": "plan/workflows/expansion.py",
        "dynamic_jobs": 'plan/workflows/spawning.py:"dynamic_jobs"',
    },
    "job": {
        "name": "agent/attempts/preparation.py",
        "command": "agent/attempts/preparation.py",
        "invocation_script": "agent/attempts/preparation.py",
        "resource_requirements": "engine/schedule/ready_queue.py",
        **_AMOUNTS,
        "failure_handler": "engine/schedule/retries.py",
        "scheduler": "agent/clusters/tickets.py",
        "cancel_on_blocking_job_failure": "engine/schedule/job_table.py",
        "supports_termination": "agent/attempts/preparation.py",
        **_LINKED,
        **_SWEEP,
        "env": "agent/attempts/preparation.py",
        "priority": "engine/schedule/ready_queue.py",
        "stdio": "agent/attempts/preparation.py",
        "label": "agent/clusters/tickets.py:planned.label",
        "queue": "app/clusters/engine.py",
        "retry_lost": "agent/clusters/tickets.py",
        "container": "agent/queue/claimed_jobs.py",
    },
    "file": {
        "name": "plan/workflows/expansion.py",
        "path": "plan/workflows/linking.py",
        "identifier": "app/crates/collection.py",
        **_SWEEP,
    },
    "user_data": {"name": "agent/runs/facts.py", "data": "agent/runs/facts.py", **_SWEEP},
    "dataset": {
        "name": "agent/provenance/datasets.py",
        "path": "agent/provenance/datasets.py",
        "hash_mode": "agent/provenance/datasets.py",
        "description": "app/runs/datasets.py",
        **_SWEEP,
    },
    "resource_requirements": {"name": "plan/workflows/expansion.py", **_AMOUNTS},
    "inline_requirements": _AMOUNTS,
    "failure_handler": {"name": "plan/workflows/expansion.py", "rules": "engine/schedule/retries.py"},
    "rule": {
        **dict.fromkeys(("exit_codes", "match_all_exit_codes"), "model/runs/workflow_spec.py:rule."),
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
            "engine/schedule/retries.py",
        ),
    },
    "action": {
        "trigger_type": "engine/schedule/triggers.py",
        "action_type": "engine/schedule/triggers.py",
        "jobs": "plan/workflows/expansion.py",
        "job_name_regexes": "plan/workflows/expansion.py",
        "commands": "agent/attempts/preparation.py",
        "scheduler": "runners/slurm/backend.py",
        "scheduler_type": "runners/slurm/backend.py",
        "num_allocations": "runners/slurm/backend.py",
        # Always so: srun starts a worker on each node of an allocation.
        "start_one_worker_per_node": "runners/slurm/orders.py:srun",
        "max_parallel_jobs": "runners/slurm/backend.py",
        "persistent": "engine/schedule/triggers.py",
    },
    "resource_monitor": {
        "enabled": "agent/attempts/preparation.py",
        "granularity": "app/driving/outputs.py",
        "sample_interval_seconds": "agent/attempts/preparation.py",
        "generate_plots": "app/driving/outputs.py",
        "jobs": "spec/workflows/values.py",
        "compute_node": "spec/workflows/values.py",
    },
    "monitor_jobs": {"enabled": "agent/attempts/preparation.py", "granularity": "app/driving/outputs.py"},
    "monitor_compute_node": dict.fromkeys(("enabled", "cpu", "memory"), "app/reports/plots.py"),
    "execution_config": {
        "mode": "spec/keys/workflow_run.py",  # which keys are allowed beside it
        "sigkill_headroom_seconds": "agent/runs/driver.py",
        "timeout_exit_code": "agent/attempts/preparation.py",
        "staggered_start": "agent/runs/in_flight.py",
        "stdio": "agent/attempts/preparation.py",
        "limit_resources": "agent/attempts/preparation.py",
        "termination_signal": "agent/attempts/preparation.py",
        "sigterm_lead_seconds": "agent/attempts/preparation.py",
        "oom_exit_code": "agent/attempts/preparation.py",
        "srun_mpi": "runners/slurm/packing.py",
        "srun_termination_signal": "plan/workflows/slurm.py",
        "enable_cpu_bind": "runners/slurm/packing.py",
    },
    "stdio": {"mode": "agent/attempts/preparation.py", "delete_on_success": "agent/attempts/preparation.py"},
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
        "runners/slurm/terms.py",
    ),
    "dynamic_jobs": {"max_iterations": "plan/workflows/spawning.py"},
    "container": {
        **dict.fromkeys(("volumes", "devices"), "model/jobs/containers.py"),
        **dict.fromkeys(
            ("image", "entrypoint", "name", "engine", "socket", "pull"), "agent/containers/container.py"
        ),
        **dict.fromkeys(("network", "user", "workdir"), "agent/containers/protocol.py"),
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
