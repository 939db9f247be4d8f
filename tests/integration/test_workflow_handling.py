"""Failures that are handled, time-outs, user data and actions, in real runs."""

import itertools
import json
import sys

import pytest

from tests.integration.workflow_cli import WorkflowCli, states


@pytest.mark.cgroup
def test_a_job_that_ran_out_of_memory_gets_more_of_it(cli: WorkflowCli) -> None:
    document = cli.run(
        """
name: oom
failure_handlers:
  - {name: more, rules: [{exit_codes: [137], max_retries: 3, memory_factor: 3}]}
jobs:
  - name: hungry
    command: "python3 -c 'x = bytearray(90 << 20)'"
    failure_handler: more
    resource_requirements: {num_cpus: 1, memory: 50m}
"""
    )
    assert states(document) == {"hungry": "completed"}
    first, second = cli.results()
    assert (first.reason, first.attempt, second.attempt) == ("out-of-memory", 1, 2)
    store = cli.store()
    asked = [store.find(one.job_uuid).job.requirements.memory_bytes for one in (first, second)]
    store.close()
    assert asked == [50 << 20, 150 << 20]


def test_a_job_whose_time_is_up_is_terminated_with_the_code_of_the_workflow(cli: WorkflowCli) -> None:
    document = cli.run(
        """
name: late
jobs:
  - {name: slow, command: "sleep 60", resource_requirements: {runtime: 0.5s}}
""",
        code=1,
    )
    (row,) = document["results"]
    assert (row["status"], row["return_code"]) == ("terminated", 152)


def test_a_job_that_can_be_reported_is_reported_before_its_time_is_up(cli: WorkflowCli) -> None:
    cli.run(
        """
name: told
execution_config: {mode: direct, termination_signal: SIGUSR1, sigterm_lead_seconds: 30}
jobs:
  - name: polite
    command: "trap 'echo told >> said; exit 0' USR1; while true; do sleep 0.05; done"
    supports_termination: true
    resource_requirements: {runtime: 2s}
"""
    )
    assert cli.lines("said") == ["told"]


def test_a_job_that_was_reported_and_goes_on_is_killed_when_its_time_is_up(cli: WorkflowCli) -> None:
    document = cli.run(
        """
name: deaf
execution_config: {mode: direct, sigterm_lead_seconds: 1}
jobs:
  - name: deaf
    command: "trap '' TERM; while true; do sleep 0.05; done"
    supports_termination: true
    resource_requirements: {runtime: 2s}
""",
        code=1,
    )
    assert states(document) == {"deaf": "terminated"}
    (result,) = cli.results()
    assert result.duration_s is not None
    assert 1.9 < result.duration_s < 8  # not another ten seconds of grace


def test_what_joblens_tells_jobs_wins_over_the_file(cli: WorkflowCli) -> None:
    cli.run(
        """
name: liar
env: {JOBLENS_RUN_ID: nope, JOBLENS_JOB_NAME: evil, MINE: kept}
jobs:
  - {name: free, command: "echo $JOBLENS_JOB_NAME:$JOBLENS_RUN_ID:$MINE >> said"}
  - {name: held, command: "echo $JOBLENS_JOB_NAME:$JOBLENS_RUN_ID:$MINE >> said",
     resource_requirements: {cpus: 0.5, memory: 200m}}
"""
    )
    run = cli.newest_run().uuid
    assert sorted(cli.lines("said")) == [f"free:{run}:kept", f"held:{run}:kept"]
    store = cli.store()
    records = [store.find(result.job_uuid) for result in cli.results()]
    store.close()
    assert all(record.job.env.get("JOBLENS_JOB_NAME") != "evil" for record in records)


def test_without_enforcing_nothing_is_ended(cli: WorkflowCli) -> None:
    text = (
        'name: free\njobs:\n  - {name: slow, command: "sleep 0.6", resource_requirements: {runtime: 0.2s}}\n'
    )
    assert states(cli.run(text, "--no-enforce")) == {"slow": "completed"}


RECOVERY = """
name: recovering
failure_handlers:
  - name: repair
    rules: [{{exit_codes: [9], recovery_script: "{script}", max_retries: 2, backoff: 0.3}}]
jobs:
  - {{name: fragile, command: "echo tried >> order; test -f repaired || exit 9", failure_handler: repair}}
  - {{name: after, command: "echo after >> order", depends_on: [fragile]}}
"""


def test_a_recovery_script_repairs_what_the_next_attempt_needs(cli: WorkflowCli) -> None:
    script = "echo $JOBLENS_JOB_NAME:$JOBLENS_EXIT_CODE >> order; touch repaired"
    document = cli.run(RECOVERY.format(script=script))
    assert cli.lines("order") == ["tried", "fragile:9", "tried", "after"]
    first, second, _ = cli.results()[-3:]
    assert second.began_at_us - (first.began_at_us + (first.duration_s or 0) * 1e6) >= 290_000
    assert {row["job_name"]: row["attempts"] for row in document["results"]} == {"fragile": 2, "after": 1}


def test_a_recovery_script_that_fails_ends_the_job(cli: WorkflowCli) -> None:
    document = cli.run(RECOVERY.format(script="exit 1"), code=1)
    assert states(document) == {"fragile": "failed", "after": "blocked"}
    assert cli.lines("order") == ["tried"]


def test_retries_come_to_an_end(cli: WorkflowCli) -> None:
    document = cli.run(
        """
name: hopeless
failure_handlers:
  - {name: again, rules: [{match_all_exit_codes: true, max_retries: 2}]}
jobs:
  - {name: no, command: "echo tried >> order; exit 4", failure_handler: again}
""",
        code=1,
    )
    assert cli.lines("order") == ["tried"] * 3
    assert document["results"][0]["attempts"] == 3


def test_user_data_is_handed_on(cli: WorkflowCli) -> None:
    set_data = f"{sys.executable} -m joblens user-data set"
    cli.run(
        """
name: data
user_data:
  - {name: given, data: {a: [1, 2], text: "it's"}}
  - {name: found}
jobs:
  - {name: make, command: "SET found '{\\"best\\": 7}'", output_user_data: [found]}
  - {name: use, command: "echo ${user_data.input.found} > said"}
  - {name: plain, command: "printf %s '${user_data.input.given}' > given"}
""".replace("SET", set_data)
    )
    assert (cli.folder / "said").read_text() == '{"best":7}\n'
    assert (cli.folder / "given").read_text() == '{"a":[1,2],"text":"it\'s"}'


def test_actions_run_when_their_trigger_comes(cli: WorkflowCli) -> None:
    cli.run(
        """
name: acting
actions:
  - {trigger_type: on_workflow_start, action_type: run_commands, commands: ["echo start >> order"]}
  - trigger_type: on_jobs_complete
    action_type: run_commands
    jobs: [one]
    commands: ["echo one-done >> order"]
  - trigger_type: on_workflow_complete
    action_type: run_commands
    commands: ["echo end >> order", "echo last >> order"]
jobs:
  - {name: one, command: "echo one >> order"}
  - {name: two, command: "sleep 0.3; echo two >> order", depends_on: [one]}
"""
    )
    order = cli.lines("order")
    assert order[:2] == ["start", "one"]
    assert order[-2:] == ["end", "last"]
    assert "one-done" in order[2:-2]
    commands = [result for result in cli.results() if result.index < 0]
    assert len(commands) in (0, 4)  # whether they are listed is the store's choice


def test_starts_are_as_far_apart_as_asked(cli: WorkflowCli) -> None:
    cli.run(
        """
name: staggered
execution_config: {staggered_start: 0.6}
jobs:
  - {name: "j_{i}", command: "true", parameters: {i: "1:3"}}
"""
    )
    began = sorted(result.began_at_us for result in cli.results())
    assert all(later - earlier >= 100_000 for earlier, later in itertools.pairwise(began))


def test_the_time_for_a_run_ends_it(cli: WorkflowCli) -> None:
    text = """
name: long
jobs:
  - {name: one, command: "sleep 60"}
  - {name: two, command: "true", depends_on: [one]}
"""
    document = cli.run(text, "--time", "1s", code=1)
    assert states(document)["one"] in ("terminated", "ready")
    assert document["run_status"] == "stopped"


def test_user_data_arrives_in_strings_and_here_documents(cli: WorkflowCli) -> None:
    text = """
name: quoting
user_data:
  - {name: d, data: {say: "it's $HOME `id` \\\\ \\"q\\"\\n"}}
  - {name: n, data: "a[$(touch broken)]"}
jobs:
  - name: word
    command: printf '%s\\n' ${user_data.input.d} > word
  - name: quoted
    command: printf '%s\\n' "${user_data.input.d}" > quoted
  - name: document
    command: |
      cat > document <<END
      ${user_data.input.d}
      END
  - name: arithmetic
    command: echo $((${user_data.input.n}))
"""
    cli.call("run", cli.write(text), "-q", code=1)
    expected = json.dumps({"say": 'it\'s $HOME `id` \\ "q"\n'}, separators=(",", ":"))
    for name in ("word", "quoted", "document"):
        assert (cli.folder / name).read_text() == expected + "\n"
    assert not (cli.folder / "broken").exists()
    shown = cli.call("results", "1", "--json", code=0).stdout
    assert states(json.loads(shown))["arithmetic"] == "failed"
    assert "its value is not a number" in cli.call("show", "arithmetic", code=0).stdout
