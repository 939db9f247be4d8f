"""A workflow file becomes a spec, or all of its problems with their places."""

from typing import Any

import pytest
from msgspec import structs

from joblens.model.jobs.job import Granularity
from joblens.model.runs.workflow_spec import (
    ActionType,
    DatasetSpec,
    ExecutionSpec,
    HashMode,
    JobSpec,
    MonitorSpec,
    ParameterMode,
    RequirementsSpec,
    RetryRule,
    Stdio,
    StdioMode,
    TriggerType,
    WhenBlockedFails,
    WorkflowSpec,
)
from joblens.spec.workflows.file import read_workflow

TOP = "name: w\njobs: [{name: a, command: ls}]\n"


def spec_of(text: str) -> WorkflowSpec:
    reading = read_workflow(text, "yaml", "w.yaml")
    assert reading.problems == ()
    assert reading.spec is not None
    return reading.spec


def job(lines: str) -> JobSpec:
    return spec_of(f"name: w\njobs: [{{name: a, command: ls, {lines}}}]").jobs[0]


def test_the_smallest_workflow_has_a_name_and_a_job() -> None:
    assert spec_of(TOP) == WorkflowSpec(name="w", jobs=(JobSpec(name="a", command="ls"),))


def test_the_older_form_of_dependencies_and_requirements_is_read() -> None:
    text = """
name: "ML Training Pipeline"
user: "researcher"
resource_monitor:
  enabled: true
  granularity: "time_series"
  sample_interval_seconds: 2
  generate_plots: false
jobs:
  - name: "preprocess"
    command: "python preprocess.py"
    resource_requirements:
      cpus: 4
      memory: "8g"
      runtime: "PT10M"
  - name: "train"
    command: "python train.py"
    blocked_by:
      - "preprocess"
    cpus: 8
    memory: "32g"
    runtime: "PT2H"
    gpus: 1
"""
    spec = spec_of(text)
    preprocess, train = spec.jobs
    assert preprocess.requirements == RequirementsSpec(num_cpus=4, memory_bytes=8 * 1024**3, runtime_s=600)
    assert train.depends_on == ("preprocess",)
    assert train.requirements == RequirementsSpec(
        num_cpus=8, memory_bytes=32 * 1024**3, runtime_s=7200, num_gpus=1
    )
    assert spec.monitor == MonitorSpec(granularity=Granularity.TIME_SERIES, sample_interval_s=2)


def test_everything_about_a_job_is_read() -> None:
    read = job(
        "invocation_script: env.sh, resource_requirements: big, failure_handler: h, scheduler: s, "
        "supports_termination: true, depends_on: [b], depends_on_regexes: [^c], input_files: [f], "
        "output_files: [g], input_file_regexes: [h], output_file_regexes: [i], input_user_data: [j], "
        "output_user_data: [k], input_user_data_regexes: [l], output_user_data_regexes: [m], "
        "input_datasets: [n], output_datasets: [o], parameters: {i: '1:3', j: [1, 2.5, x]}, "
        "parameter_mode: zip, use_parameters: [k], env: {A: b}, priority: -3, label: slow, "
        "stdio: {mode: combined, delete_on_success: true}"
    )
    assert read == JobSpec(
        name="a",
        command="ls",
        invocation_script="env.sh",
        requirements="big",
        failure_handler="h",
        scheduler="s",
        supports_termination=True,
        depends_on=("b",),
        depends_on_regexes=("^c",),
        input_files=("f",),
        output_files=("g",),
        input_file_regexes=("h",),
        output_file_regexes=("i",),
        input_user_data=("j",),
        output_user_data=("k",),
        input_user_data_regexes=("l",),
        output_user_data_regexes=("m",),
        input_datasets=("n",),
        output_datasets=("o",),
        parameters={"i": "1:3", "j": [1, 2.5, "x"]},
        parameter_mode=ParameterMode.ZIP,
        use_parameters=("k",),
        env={"A": "b"},
        priority=-3,
        label="slow",
        stdio=Stdio(mode=StdioMode.COMBINED, delete_on_success=True),
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("priority: 0", WhenBlockedFails.WAIT),
        ("cancel_on_blocking_job_failure: null", WhenBlockedFails.WAIT),
        ("cancel_on_blocking_job_failure: true", WhenBlockedFails.CANCEL),
        ("cancel_on_blocking_job_failure: false", WhenBlockedFails.RUN),
    ],
)
def test_what_a_job_does_when_its_dependency_fails_has_three_answers(
    written: str, meant: WhenBlockedFails
) -> None:
    assert job(written).when_blocked_fails is meant


def test_files_user_data_and_datasets_are_read() -> None:
    spec = spec_of(
        TOP
        + "files: [{name: 'out/f_{i}', path: 'f_{i}.csv', st_mtime: 12, parameters: {i: '1:2'}}]\n"
        + "user_data: [{data: {a: [1, null]}, is_ephemeral: true}, {name: made_by_a_job}]\n"
        + "datasets: [{name: d, path: data/, hash_mode: content}]\n"
    )
    assert spec.files[0].path == "f_{i}.csv"
    assert spec.files[0].parameters == {"i": "1:2"}
    assert (spec.user_data[0].data, spec.user_data[0].is_ephemeral) == ({"a": [1, None]}, True)
    assert spec.user_data[1].name == "made_by_a_job"
    assert spec.datasets == (DatasetSpec(name="d", path="data/", hash_mode=HashMode.CONTENT),)


def test_a_rule_of_a_failure_handler_may_wait_and_grow() -> None:
    spec = spec_of(
        TOP
        + "failure_handlers: [{name: h, rules: [{exit_codes: [137], recovery_script: fix.sh, max_retries: 5, "
        "backoff: 10s, backoff_factor: 3, max_backoff: 5m, memory_factor: 1.5, runtime_factor: 2}, "
        "{match_all_exit_codes: true}]}]"
    )
    assert spec.failure_handlers[0].rules == (
        RetryRule(
            exit_codes=(137,),
            recovery_script="fix.sh",
            max_retries=5,
            backoff_s=10,
            backoff_factor=3,
            max_backoff_s=300,
            memory_factor=1.5,
            runtime_factor=2,
        ),
        RetryRule(match_all_exit_codes=True),
    )


def test_actions_are_read() -> None:
    spec = spec_of(
        TOP + "actions:\n"
        "- {trigger_type: on_workflow_start, action_type: run_commands, commands: [mkdir -p out]}\n"
        "- {trigger_type: on_jobs_ready, action_type: schedule_nodes, job_name_regexes: ['^a'],\n"
        "   scheduler: s, scheduler_type: slurm, num_allocations: 2, start_one_worker_per_node: true,\n"
        "   max_parallel_jobs: 4, persistent: true}\n"
    )
    first, second = spec.actions
    assert (first.trigger_type, first.commands) == (TriggerType.ON_WORKFLOW_START, ("mkdir -p out",))
    assert second.action_type is ActionType.SCHEDULE_NODES
    assert (second.scheduler, second.num_allocations, second.max_parallel_jobs) == ("s", 2, 4)
    assert second.persistent


@pytest.mark.parametrize(
    ("written", "monitor"),
    [
        ("{}", MonitorSpec()),
        ("null", MonitorSpec()),
        ("{enabled: false}", MonitorSpec(enabled=False, host_enabled=False)),
        ("{sample_interval_seconds: 0.05}", MonitorSpec(sample_interval_s=0.05)),
        ("{sample_interval_seconds: 500ms}", MonitorSpec(sample_interval_s=0.5)),
        ("{flush_interval_seconds: 300}", MonitorSpec(flush_interval_s=300)),
        ("{jobs: {enabled: false}}", MonitorSpec(enabled=False)),
        (
            "{granularity: summary, jobs: {granularity: time_series}}",
            MonitorSpec(granularity=Granularity.TIME_SERIES),
        ),
        (
            "{compute_node: {enabled: true, granularity: time_series, cpu: false, memory: true}}",
            MonitorSpec(host_granularity=Granularity.TIME_SERIES, host_cpu=False),
        ),
    ],
)
def test_monitoring_is_read_flat_and_nested(written: str, monitor: MonitorSpec) -> None:
    assert spec_of(f"{TOP}resource_monitor: {written}").monitor == monitor


@pytest.mark.parametrize(
    ("written", "execution"),
    [
        ("{}", ExecutionSpec()),
        (
            "{termination_signal: INT, sigterm_lead_seconds: 5}",
            ExecutionSpec(termination_signal="SIGINT", sigterm_lead_s=5),
        ),
        (
            "{mode: slurm, srun_termination_signal: TERM@120, enable_cpu_bind: true}",
            ExecutionSpec(mode="slurm", srun_termination_signal="TERM@120", enable_cpu_bind=True),
        ),
        (
            "{mode: auto, enable_cpu_bind: false, oom_exit_code: 9}",
            ExecutionSpec(mode="auto", enable_cpu_bind=False, oom_exit_code=9),
        ),
        (
            "{staggered_start: 200ms, stdio: {mode: none}}",
            ExecutionSpec(staggered_start_s=0.2, stdio=Stdio(mode=StdioMode.NONE)),
        ),
        ("{staggered_start: true}", ExecutionSpec()),
    ],
)
def test_execution_is_read(written: str, execution: ExecutionSpec) -> None:
    assert spec_of(f"{TOP}execution_config: {written}").execution == execution


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("jobs_sort_method: gpus_memory_runtime", {"jobs_sort_method": "gpus_memory_runtime"}),
        ("dynamic_jobs: {max_iterations: 3}", {"dynamic_jobs": {"max_iterations": 3}}),
        ("enable_ro_crate: true", {"enable_ro_crate": True}),
        ("access_groups: [team]", {"access_groups": ("team",)}),
        ("compute_node_expiration_buffer_seconds: 60", {"compute_node_expiration_buffer_seconds": 60}),
        ("compute_node_wait_for_new_jobs_seconds: null", {}),
        ("$schema: ./workflow.schema.json", {}),
    ],
)
def test_what_other_engines_use_is_kept(line: str, kept: dict[str, Any]) -> None:
    assert spec_of(TOP + line).other == kept


def test_slurm_keys_are_checked_and_kept() -> None:
    spec = spec_of(
        TOP + "slurm_schedulers: [{name: s, account: a, nodes: 2, walltime: 1-04:00:00, mem: 180G}]\n"
        "slurm_defaults: {mail-type: ALL, qos: high, exclusive: true}\n"
    )
    assert spec.slurm_schedulers[0]["walltime"] == "1-04:00:00"
    assert spec.slurm_defaults == {"mail_type": "ALL", "qos": "high", "exclusive": True}


@pytest.mark.parametrize(
    ("written", "value"), [("'{\"a\": 1}'", {"a": 1}), ("{a: 1}", {"a": 1}), ("null", None)]
)
def test_metadata_may_be_json_text_or_values(written: str, value: Any) -> None:
    assert spec_of(f"{TOP}metadata: {written}").metadata == value


def test_numbers_are_text_where_text_is_natural() -> None:
    spec = spec_of(f"{TOP}variables: {{n: 3, lr: 0.1, on: true}}\nenv: {{N: 3, T: false}}\nuser: 17")
    assert spec.variables == {"n": "3", "lr": "0.1", "on": "true"}
    assert spec.env == {"N": "3", "T": "false"}
    assert spec.user == "17"


@pytest.mark.parametrize(
    ("written", "requirements"),
    [
        ("num_cpus: 0.5", RequirementsSpec(num_cpus=0.5)),
        ("num_gpus: 2.0", RequirementsSpec(num_gpus=2)),
        ("memory: 1.5GiB", RequirementsSpec(memory_bytes=1536 * 1024**2)),
        ("memory: 4194304", RequirementsSpec(memory_bytes=4 * 1024**2)),
        ("runtime: 90", RequirementsSpec(runtime_s=90)),
        ("runtime: 1h30m", RequirementsSpec(runtime_s=5400)),
        ("num_nodes: 2", RequirementsSpec(num_nodes=2)),
        ("nodes: 2", RequirementsSpec(num_nodes=2)),
    ],
)
def test_amounts_may_be_written_in_many_ways(written: str, requirements: RequirementsSpec) -> None:
    assert job(written).requirements == requirements
    assert job(f"resource_requirements: {{{written}}}").requirements == requirements
    named = spec_of(f"{TOP}resource_requirements: [{{name: r, {written}}}]").requirements
    assert named == (structs.replace(requirements, name="r"),)


def test_equal_requirements_are_one_value() -> None:
    first, second = spec_of(
        "name: w\njobs: [{name: a, command: ls, cpus: 2}, {name: b, command: ls, cpus: 2}]"
    ).jobs
    assert first.requirements is second.requirements
    assert first.env is second.env


@pytest.mark.parametrize("pattern", ["^job_\\d+$", "a{2}", "part_{i:03d}$", "[{low}-{high}]", "(a|b)+", ""])
def test_patterns_may_have_parameters_in_them(pattern: str) -> None:
    assert job(f"depends_on_regexes: ['{pattern}']").depends_on_regexes == (pattern,)


def test_other_formats_give_the_same_spec() -> None:
    text = '{"name": "w", "jobs": [{"name": "a", "command": "ls", "memory": "8 gigs", "cpus": 9.0}]}'
    reading = read_workflow(text, "json", "w.json")
    assert [one.message for one in reading.problems] == [
        "memory in job 'a' must be a size such as 512m, 2g or 1.5GiB, not '8 gigs'"
    ]
    good = read_workflow(text.replace("8 gigs", "8g"), "json", "w.json")
    assert good.spec is not None
    assert good.spec.jobs[0].requirements == RequirementsSpec(num_cpus=9, memory_bytes=8 * 1024**3)
