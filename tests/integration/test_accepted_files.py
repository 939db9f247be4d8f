# ruff: noqa: E501, ISC004 - a table of texts
"""Which workflow files are accepted, rule by rule: the verdict, and words of the mistake or the warning.

Rules of other systems that joblens does not share are here too, with the reason in docs/migrating.md."""

from pathlib import Path

import pytest

from joblens.app.workflows.loader import LoadedSpec, load_spec
from joblens.model.errors import SpecError

JOB = "jobs: [{name: a, command: x}]"
SCHEDULERS = (
    "slurm_schedulers: [{name: s, account: p, nodes: 4, walltime: '01:00:00', mem: 8g, gres: 'gpu:2'}]"
)
ASK = "{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm%s}"
CRATE = "enable_ro_crate: true\nfiles: [{name: f, path: data/f, %s}]\njobs: [{name: a, command: x, %s}]"
READS = "input_files: [f]"


def load(folder: Path, text: str) -> LoadedSpec:
    path = folder / "flow.yaml"
    path.write_text(f"name: w\n{text}\n")
    (folder / "rows.csv").write_text("i\n1\n2\n")
    return load_spec(str(path))


ACCEPTED = {
    "unknown keys of resource_monitor": f"resource_monitor: {{granularity: summary, metrics: [cpu]}}\n{JOB}",
    "unknown keys of its parts": f"resource_monitor: {{jobs: {{enabled: true, disk: true}}}}\n{JOB}",
    "jobs of an action at the start": f"actions: [{{trigger_type: on_workflow_start, action_type: run_commands, "
    f"commands: [ls], jobs: [a]}}]\n{JOB}",
    "jobs of an action of workers": f"actions: [{{trigger_type: on_worker_start, action_type: run_commands, "
    f"commands: [ls], job_name_regexes: [a]}}]\n{JOB}",
    "keys of the other kind of action": f"actions: [{{trigger_type: on_workflow_start, "
    f"action_type: run_commands, commands: [ls], num_allocations: 2}}]\n{JOB}",
    "a regex of an action beside one that matches": f"actions: [{{trigger_type: on_jobs_ready, "
    f"action_type: run_commands, commands: [ls], job_name_regexes: ['^a$', '^zz$']}}]\n{JOB}",
    "true limits with srun": f"execution_config: {{mode: slurm, limit_resources: true}}\n{JOB}",
    "no binding without srun": f"execution_config: {{mode: direct, enable_cpu_bind: false}}\n{JOB}",
    "an identifier of an input": CRATE % ("identifier: 'doi:1'", READS),
    "an identifier of an input by a reference": (CRATE % ("identifier: 'doi:1'", "env: {}")).replace(
        "command: x", "command: 'x ${files.input.f}'"
    ),
    "an identifier of an input by a regex": CRATE % ("identifier: 'doi:1'", "input_file_regexes: ['^f']"),
    "an identifier of a file that was there": CRATE % ("identifier: 'doi:1', st_mtime: 5.0", "env: {}"),
    "jobs of one node in a larger allocation": f"{SCHEDULERS}\nactions: [{ASK % ''}]\n"
    "jobs: [{name: a, command: x, scheduler: s}]",
    "jobs of as many nodes as the allocation": f"{SCHEDULERS}\nactions: [{ASK % ''}]\n"
    "jobs: [{name: a, command: x, scheduler: s, num_nodes: 4}]",
    "one worker for each node": f"{SCHEDULERS}\nactions: [{ASK % ', start_one_worker_per_node: true'}]\n{JOB}",
    "more time than its scheduler has": f"{SCHEDULERS}\njobs: [{{name: a, command: x, scheduler: s, runtime: 2h}}]",
    "more memory and GPUs than its scheduler has": f"{SCHEDULERS}\n"
    "jobs: [{name: a, command: x, scheduler: s, memory: 9g, num_gpus: 3}]",
    "more than any scheduler has": f"{SCHEDULERS}\njobs: [{{name: a, command: x, runtime: 2h, memory: 1g}}]",
    "as much as its scheduler has": f"{SCHEDULERS}\n"
    "jobs: [{name: a, command: x, scheduler: s, memory: 8g, num_gpus: 2, runtime: 1h}]",
    "nodes asked for by workers": f"{SCHEDULERS}\nactions: [{ASK % ''}]\n{JOB}".replace(
        "on_workflow_start", "on_worker_start"
    ),
    "nodes asked for at the end": f"{SCHEDULERS}\nactions: [{ASK % ''}]\n{JOB}".replace(
        "workflow_start", "workflow_complete"
    ),
    "an MPI mode": f"execution_config: {{srun_mpi: pmi2}}\n{JOB}",
    "metadata as values": f"metadata: {{team: ice}}\n{JOB}",
    "metadata as text": f'metadata: \'{{"team": "ice"}}\'\n{JOB}',
    "null for a key that may be absent": "jobs: [{name: a, command: x, env: null, parameters: null}]",
    "user data without a name": f"user_data: [{{data: 1}}, {{data: 2}}]\n{JOB}",
    "nested values in a table": "jobs: [{name: 'a_{i}', command: x, parameters_file: rows.csv}]",
    "a label": "jobs: [{name: a, command: x, label: windows}]",
    "no label": "jobs: [{name: a, command: x, label: null}]",
    "a variable with the shell's own": "variables: {h: '${HOME}/x'}\njobs: [{name: a, command: 'x {h}'}]",
    "a variable in a range": "variables: {top: '3'}\njobs: [{name: 'a_{i}', command: x, parameters: {i: '1:{top}'}}]",
    "braces of others beside variables": "variables: {v: y}\n"
    "jobs: [{name: a, command: 'find {v} -exec ls {} ;', env: {D: '{\"x\": 1}'}}]",
    "a variable beside columns of a table": "variables: {v: y}\n"
    "jobs: [{name: 'a_{i}', command: 'x {v} {i}', parameters_file: rows.csv}]",
    "a shared parameter in the environment": "parameters: {i: '1:2', one: '[7]'}\nenv: {N: '{one}'}\n"
    "jobs: [{name: 'a_{i}', command: x, use_parameters: [i]}]",
    "no table of the workflow wanted": "jobs: [{name: 'a_{i}', command: x, use_parameters_file: false, parameters: {i: '1:2'}}]",
    "a number for a parameter": "jobs: [{name: 'a_{i}', command: x, parameters: {i: 5}}]",
    "dynamic jobs without a limit": f"dynamic_jobs: {{}}\n{JOB}",
    "null for every list": f"files: null\nuser_data: null\nactions: null\n{JOB}",
    "a path of a dataset in a command": "datasets: [{name: d, path: out/}]\n"
    "jobs: [{name: a, command: 'x ${datasets.output.d}'}, {name: b, command: 'y ${datasets.input.d}'}]",
    "a label with parameters": "jobs: [{name: 'a_{i}', command: x, label: 'l{i}', parameters: {i: '1:2'}}]",
}

WARNED = {
    "true limits with srun": "flow.yaml:2:20: mode in execution_config: 'slurm' has no effect",
    "an identifier of a file that was there": "flow.yaml:3:54: st_mtime in file 'f' has no effect",
    "nodes asked for by workers": "flow.yaml:3:12: schedule_nodes has no effect with trigger_type on_worker_start",
    "nodes asked for at the end": "flow.yaml:3:12: schedule_nodes has no effect with trigger_type on_workflow_complete",
    "more time than its scheduler has": "job 'a' may take 2h00m00s, but allocations of scheduler 's' last 1h00m00s",
    "more memory and GPUs than its scheduler has": "job 'a' requests 9.0 GiB, but allocations of scheduler 's' have 8.0 GiB",
    "more than any scheduler has": "job 'a' fits into no allocation: it may take 2h00m00s, but those of scheduler 's' last",
    "unknown keys of resource_monitor": "flow.yaml:2:42: unknown key 'metrics' in resource_monitor",
    "unknown keys of its parts": "flow.yaml:2:42: unknown key 'disk' in resource_monitor.jobs",
    "jobs of an action at the start": "jobs in an action has no effect with trigger_type on_workflow_start",
    "jobs of an action of workers": "job_name_regexes in an action has no effect with trigger_type on_worker_start",
    "keys of the other kind of action": "num_allocations in an action has no effect with action_type run_commands",
    "a regex of an action beside one that matches": "regex '^zz$' matches no job",
}

REFUSED = {
    "an unknown key": (f"bananas: 1\n{JOB}", "unknown key 'bananas'"),
    "an unknown key of a job": (
        "jobs: [{name: a, command: x, bananas: 1}]",
        "unknown key 'bananas' in job 'a'",
    ),
    "no name": ("jobs: [{command: x}]", "a job has no 'name'"),
    "no command": ("jobs: [{name: a}]", "job 'a' has no 'command'"),
    "two jobs of one name": (
        "jobs: [{name: a, command: x}, {name: a, command: y}]",
        "duplicate job 'a'",
    ),
    "a sweep without its parameter in the name": (
        "jobs: [{name: a, command: x, parameters: {i: '1:2'}}]",
        "duplicate job 'a'; use every parameter in the name: {i}",
    ),
    "two files of one name": (
        f"files: [{{name: f, path: p}}, {{name: f, path: q}}]\n{JOB}",
        "duplicate file 'f'",
    ),
    "two user data of one name": (
        f"user_data: [{{name: d}}, {{name: d}}]\n{JOB}",
        "duplicate user data 'd'",
    ),
    "two requirements of one name": (
        f"resource_requirements: [{{name: r}}, {{name: r}}]\n{JOB}",
        "duplicate resource requirement 'r'",
    ),
    "two handlers of one name": (
        "failure_handlers: [{name: h, rules: [{exit_codes: [1]}]}, {name: h, rules: [{exit_codes: [2]}]}]\n"
        + JOB,
        "duplicate failure handler 'h'",
    ),
    "two schedulers of one name": (
        f"slurm_schedulers: [{{name: s, account: p}}, {{name: s, account: q}}]\n{JOB}",
        "duplicate scheduler 's'",
    ),
    "requirements named default": (
        f"resource_requirements: [{{name: default}}]\n{JOB}",
        "name in resource requirements",
    ),
    "unknown requirements": (
        "jobs: [{name: a, command: x, resource_requirements: r}]",
        "there is no resource requirement",
    ),
    "an unknown handler": (
        "jobs: [{name: a, command: x, failure_handler: h}]",
        "there is no failure handler 'h'",
    ),
    "an unknown scheduler": ("jobs: [{name: a, command: x, scheduler: s}]", "there is no scheduler 's'"),
    "an unknown dependency": ("jobs: [{name: a, command: x, depends_on: [b]}]", "there is no job 'b'"),
    "an unknown file": ("jobs: [{name: a, command: x, input_files: [f]}]", "there is no file 'f'"),
    "unknown user data": (
        "jobs: [{name: a, command: x, output_user_data: [d]}]",
        "there is no user data 'd'",
    ),
    "a regex that matches nothing": (
        "jobs: [{name: a, command: x, depends_on_regexes: ['^b']}]",
        "regex '^b' matches no job",
    ),
    "a regex that is none": (
        "jobs: [{name: a, command: x, input_file_regexes: ['(']}]",
        "input_file_regexes",
    ),
    "a ring": (
        "jobs: [{name: a, command: x, depends_on: [b]}, {name: b, command: x, depends_on: [a]}]",
        "jobs wait for each other",
    ),
    "a scheduler's account missing": (
        f"slurm_schedulers: [{{name: s}}]\n{JOB}",
        "Slurm scheduler 's' has no 'account'",
    ),
    "an option of sbatch that a scheduler decides": (f"slurm_defaults: {{partition: p}}\n{JOB}", "partition"),
    "an environment variable's name": ("jobs: [{name: a, command: x, env: {A-B: 1}}]", "env.A-B in job 'a'"),
    "an environment variable's name of the workflow": (f"env: {{1A: x}}\n{JOB}", "env.1A"),
    "iterations of dynamic jobs": (
        f"dynamic_jobs: {{max_iterations: 0}}\n{JOB}",
        "max_iterations in dynamic_jobs",
    ),
    "a table beside parameters": (
        "jobs: [{name: 'a_{i}', command: x, parameters_file: rows.csv, parameters: {i: 1}}]",
        "parameters in job 'a_{i}' cannot be combined with parameters_file",
    ),
    "a table beside a mode": (
        "jobs: [{name: 'a_{i}', command: x, parameters_file: rows.csv, parameter_mode: product}]",
        "parameter_mode in job 'a_{i}' cannot be combined with parameters_file",
    ),
    "two tables": (
        "parameters_file: rows.csv\n"
        "jobs: [{name: 'a_{i}', command: x, parameters_file: rows.csv, use_parameters_file: true}]",
        "use_parameters_file in job 'a_{i}' cannot be combined with parameters_file",
    ),
    "a table of the workflow that is not there": (
        "jobs: [{name: 'a_{i}', command: x, use_parameters_file: true}]",
        "use_parameters_file in job 'a_{i}' requires a parameters_file",
    ),
    "a shared table beside shared parameters": (
        f"parameters_file: rows.csv\nparameters: {{i: 1}}\n{JOB}",
        "parameters cannot be combined with parameters_file",
    ),
    "values of different number side by side": (
        "jobs: [{name: 'a_{i}_{k}', command: x, parameters: {i: '1:2', k: '1:3'}, parameter_mode: zip}]",
        "parameter_mode zip needs equally many values per parameter",
    ),
    "a step of nothing": (
        "jobs: [{name: 'a_{i}', command: x, parameters: {i: '1:2:0'}}]",
        "parameter 'i': the step",
    ),
    "a variable and a parameter of one name": (
        "variables: {i: y}\njobs: [{name: 'a_{i}', command: x, parameters: {i: '1:2'}}]",
        "'i' is a variable and a parameter of an entry in jobs",
    ),
    "a variable's name": (f"variables: {{a b: y}}\n{JOB}", "variables.a b is not a valid name for {…}"),
    "a variable's name that begins with a digit": (
        f"variables: {{1a: y}}\n{JOB}",
        "variables.1a is not a valid name for {…}; use letters, digits, _ and -, starting with a letter or _",
    ),
    "variables that are a list": (f"variables: [a]\n{JOB}", "variables must be a mapping"),
    "metadata that is a list": (f"metadata: [1]\n{JOB}", "metadata must be"),
    "a regex that matches its own job": (
        "jobs: [{name: a_1, command: x}, {name: a_2, command: x, depends_on_regexes: ['a_.*']}]",
        "regex 'a_.*' matches job 'a_2' itself",
    ),
    "a regex of outputs that matches nothing": (
        "files: [{name: f, path: p}]\njobs: [{name: a, command: x, output_file_regexes: [z]}]",
        "regex 'z' matches no file",
    ),
    "a regex of user data that matches nothing": (
        "user_data: [{name: d, data: 1}]\njobs: [{name: a, command: x, input_user_data_regexes: [z]}]",
        "regex 'z' matches no user data",
    ),
    "a reference to an unknown file": (
        "jobs: [{name: a, command: 'x ${files.input.z}'}]",
        "there is no file 'z'",
    ),
    "a reference to an unknown dataset": (
        "jobs: [{name: a, command: 'x ${datasets.input.z}'}]",
        "there is no dataset 'z'",
    ),
    "one worker for each node where the engine decides": (
        f"execution_config: {{mode: auto}}\n{SCHEDULERS}\n"
        f"actions: [{ASK % ', start_one_worker_per_node: true'}]\n{JOB}",
        "start_one_worker_per_node needs mode direct in execution_config, not auto",
    ),
    "an empty list of jobs of an action": (
        f"actions: [{{trigger_type: on_jobs_ready, action_type: run_commands, commands: [ls], jobs: []}}]\n{JOB}",
        "trigger_type on_jobs_ready in an action requires 'jobs' or 'job_name_regexes'",
    ),
    "a regex of an action that is none": (
        f"actions: [{{trigger_type: on_jobs_ready, action_type: run_commands, commands: [ls], job_name_regexes: ['(']}}]\n{JOB}",
        "job_name_regexes in an action must be a regular expression",
    ),
    "a label that is blank for one row": (
        "jobs: [{name: 'a_{i}', command: x, label: '{i}', parameters: {i: [x, '']}}]",
        "label '' is empty",
    ),
    "a variable in a variable": (f"variables: {{i: y, k: '{{i}}'}}\n{JOB}", "variable 'k' contains '{i}'"),
    "a name that is no variable": (
        "variables: {i: y}\njobs: [{name: a, command: 'x {k}'}]",
        "'{k}' is neither a variable nor a parameter here",
    ),
    "an unknown trigger": (
        f"actions: [{{trigger_type: on_ready_jobs, action_type: run_commands, commands: [ls]}}]\n{JOB}",
        "trigger_type in an action must be",
    ),
    "an unknown kind of action": (
        f"actions: [{{trigger_type: on_workflow_start, action_type: dance}}]\n{JOB}",
        "action_type in an action must be",
    ),
    "an action on jobs without jobs": (
        f"actions: [{{trigger_type: on_jobs_ready, action_type: run_commands, commands: [ls]}}]\n{JOB}",
        "trigger_type on_jobs_ready in an action requires 'jobs' or 'job_name_regexes'",
    ),
    "an action on jobs that do not exist": (
        f"actions: [{{trigger_type: on_jobs_ready, action_type: run_commands, commands: [ls], jobs: [zz]}}]\n{JOB}",
        "there is no job 'zz'",
    ),
    "an action at the start with jobs that do not exist": (
        f"actions: [{{trigger_type: on_workflow_start, action_type: run_commands, commands: [ls], jobs: [zz]}}]\n{JOB}",
        "there is no job 'zz'",
    ),
    "an action without a match": (
        f"actions: [{{trigger_type: on_jobs_ready, action_type: run_commands, commands: [ls], job_name_regexes: [zz]}}]\n{JOB}",
        "regex 'zz' matches no job",
    ),
    "an action without commands": (
        f"actions: [{{trigger_type: on_workflow_start, action_type: run_commands}}]\n{JOB}",
        "action_type run_commands in an action requires 'commands'",
    ),
    "an action of an unknown scheduler": (f"actions: [{ASK % ''}]\n{JOB}", "there is no scheduler 's'"),
    "more nodes than the allocation": (
        f"{SCHEDULERS}\nactions: [{ASK % ''}]\njobs: [{{name: a, command: x, scheduler: s, num_nodes: 2}}]",
        "job 'a' requests 2 nodes, but scheduler 's' has allocations of 4; request 4, or 1",
    ),
    "one worker for each node with srun": (
        f"execution_config: {{mode: slurm}}\n{SCHEDULERS}\n"
        f"actions: [{ASK % ', start_one_worker_per_node: true'}]\n{JOB}",
        "start_one_worker_per_node needs mode direct in execution_config, not slurm",
    ),
    "no limits with srun": (
        f"execution_config: {{mode: slurm, limit_resources: false}}\n{JOB}",
        "limit_resources in",
    ),
    "a signal of joblens with srun": (
        f"execution_config: {{mode: slurm, termination_signal: SIGINT}}\n{JOB}",
        "termination_signal in execution_config requires mode direct or auto, not slurm",
    ),
    "a lead with srun": (
        f"execution_config: {{mode: slurm, sigterm_lead_seconds: 5}}\n{JOB}",
        "sigterm_lead_seconds in",
    ),
    "a code for memory with srun": (
        f"execution_config: {{mode: slurm, oom_exit_code: 9}}\n{JOB}",
        "oom_exit_code in",
    ),
    "a signal of srun without it": (
        f"execution_config: {{srun_termination_signal: TERM@120}}\n{JOB}",
        "srun_termination_signal in execution_config requires mode slurm or auto, not direct",
    ),
    "binding without srun": (f"execution_config: {{enable_cpu_bind: true}}\n{JOB}", "enable_cpu_bind in"),
    "an MPI mode that is none": (
        f"execution_config: {{srun_mpi: 'pmi2 x'}}\n{JOB}",
        "srun_mpi in execution_config must be",
    ),
    "an empty MPI mode": (
        f"execution_config: {{srun_mpi: ''}}\n{JOB}",
        "srun_mpi in execution_config must be",
    ),
    "a way of output": (f"execution_config: {{stdio: {{mode: both}}}}\n{JOB}", "mode in stdio must be"),
    "an unknown key of output": (
        "jobs: [{name: a, command: x, stdio: {file: f}}]",
        "unknown key 'file' in stdio",
    ),
    "an empty label": ("jobs: [{name: a, command: x, label: ''}]", "label in job 'a' must not be empty"),
    "a label with spaces around": (
        "jobs: [{name: a, command: x, label: ' gpu'}]",
        "label in job 'a' must not begin or end",
    ),
    "an older word": (f"slurm_config: {{}}\n{JOB}", "unknown key 'slurm_config'; write its options"),
    "an identifier without RO-Crate": (
        f"files: [{{name: f, path: p, identifier: i}}]\njobs: [{{name: a, command: x, {READS}}}]",
        "identifier of file 'f' needs enable_ro_crate: true",
    ),
    "an empty identifier": (CRATE % ("identifier: ' '", READS), "identifier of file 'f' must not be empty"),
    "a reserved identifier": (
        CRATE % ("identifier: '#job-3'", READS),
        "identifier '#job-3' of file 'f' is reserved",
    ),
    "the crate's own identifier": (
        CRATE % ("identifier: './'", READS),
        "identifier './' of file 'f' is reserved",
    ),
    "an identifier that is another's path": (
        "enable_ro_crate: true\nfiles: [{name: f, path: p, identifier: q}, {name: g, path: q}]\n"
        "jobs: [{name: a, command: x, input_files: [f, g]}]",
        "identifier 'q' of file 'f' is the path of file 'g'",
    ),
    "two files of one identifier": (
        "enable_ro_crate: true\nfiles: [{name: 'f_{i}', path: 'p_{i}', identifier: q, parameters: {i: '1:2'}}]\n"
        "jobs: [{name: a, command: x, input_file_regexes: [f]}]",
        "files 'f_1' and 'f_2' have the same identifier 'q'",
    ),
    "an identifier of an output": (
        CRATE % ("identifier: q", "output_files: [f]"),
        "identifier of file 'f': job 'a' makes it, and only files that no job makes can have one",
    ),
    "an identifier of a file that nobody reads": (
        CRATE % ("identifier: q", "env: {}"),
        "identifier of file 'f': no job reads it",
    ),
}


@pytest.mark.parametrize("rule", ACCEPTED)
def test_a_file_is_accepted(rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load(tmp_path, ACCEPTED[rule])
    warnings = [text for text in loaded.warnings_for("slurm") if "no resource_requirements" not in text]
    expected = WARNED.get(rule)
    assert len(warnings) == (expected is not None), warnings
    assert expected is None or expected in warnings[0]


@pytest.mark.parametrize("rule", REFUSED)
def test_a_file_is_refused(rule: str, tmp_path: Path) -> None:
    text, message = REFUSED[rule]
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text)
    assert [one for one in caught.value.problems if message in one], caught.value.problems
