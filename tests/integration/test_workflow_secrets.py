"""Secrets in a workflow file: nothing that lasts has them, and runs go on all the same."""

import os
import re
import stat
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from joblens.app.runs.records import create_run
from joblens.app.runs.user_data import set_user_data
from joblens.app.wiring.drivers import spool_dir
from joblens.app.workflows.loader import load_spec
from joblens.model.errors import StoreError
from joblens.model.history import HistoryQuery
from joblens.model.runs.run import RunOptions
from joblens.model.settings import Settings, StoreSettings
from tests.integration.workflow_cli import WorkflowCli

SECRETS = ("hunter2hunter2", "tok-abc-9876", "swordfish77", "s3cr3t-in-a-comment", "rowsecret55")
FLOW = """
name: secretive
env: {API_KEY: hunter2hunter2, MODE: fast}  # token: s3cr3t-in-a-comment
variables: {password: swordfish77}
parameters_file: rows.csv
jobs:
  - name: "use_{i}"
    use_parameters_file: true
    command: "echo $API_KEY {password} {access_token} >> used; : --token tok-abc-9876; test -f go"
  - {name: after, command: "echo after $MODE >> used", depends_on_regexes: ["^use_"]}
"""


@pytest.fixture
def cli(cli: WorkflowCli, tmp_path: Path) -> WorkflowCli:
    (tmp_path / "rows.csv").write_text("i,access_token\n1,rowsecret55\n")
    return cli


def kept_files(cli: WorkflowCli) -> list[Path]:
    return sorted(Path(spool_dir(str(cli.store_path))).glob("*.spec"))


def places_of_secrets(cli: WorkflowCli) -> list[tuple[str, str]]:
    """In everything joblens has written, but for the private files that are there for it."""
    state = Path(os.environ["XDG_STATE_HOME"])
    files = [path for root in (cli.store_path.parent, state) for path in root.rglob("*") if path.is_file()]
    given = {cli.folder / "flow.yaml", cli.folder / "rows.csv", cli.folder / "used"}
    texts = {path: path.read_bytes() for path in files if path.suffix != ".spec" and path not in given}
    run = cli.newest_run()  # the store packs it
    texts[Path("run")] = repr(run).encode()
    return [(str(path), word) for path, text in texts.items() for word in SECRETS if word.encode() in text]


def test_no_secret_of_a_file_reaches_the_store_and_a_resume_has_them(cli: WorkflowCli) -> None:
    process_path = cli.write(FLOW)
    cli.call("run", process_path, "--json", code=1)
    used = "hunter2hunter2 swordfish77 rowsecret55"
    assert (cli.folder / "used").read_text() == f"{used}\n"
    assert places_of_secrets(cli) == []
    (kept,) = kept_files(cli)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    text = cli.newest_run().spec_text
    assert "MODE: fast" in text, "what is no secret stays as it was written"
    assert "depends_on_regexes" in text
    (cli.folder / "go").touch()
    cli.write("changed: since\n")
    cli.call("rerun", "1.1", "--failed", code=0)
    assert (cli.folder / "used").read_text() == f"{used}\n{used}\nafter fast\n"
    cli.call("run-jobs", "1", code=0)
    assert (cli.folder / "used").read_text().count(used) == 3
    assert places_of_secrets(cli) == []
    assert len(kept_files(cli)) == 3
    rows = cli.call("results", "1", "--json", code=0).json["results"]
    assert [row["job_name"] for row in rows] == ["use_1", "after"]


def test_a_run_in_the_background_has_its_secrets(cli: WorkflowCli) -> None:
    (cli.folder / "go").touch()
    cli.write(FLOW.replace("swordfish77", "x"))
    label = cli.call("submit", "flow.yaml", "--param", "password=swordfish77", code=0).stdout.strip()
    cli.call("wait", label, code=0)
    assert cli.lines("used")[:3] == ["hunter2hunter2", "swordfish77", "rowsecret55"]
    assert places_of_secrets(cli) == []


def test_without_the_private_file_the_workflow_file_will_do_and_else_it_is_said_what_is_missing(
    cli: WorkflowCli,
) -> None:
    cli.write(FLOW)
    cli.call("workflows", "create-from-spec", "flow.yaml", code=0)
    (kept,) = kept_files(cli)
    kept.unlink()
    cli.write(FLOW.replace("MODE: fast", "MODE: slow"))
    failed = cli.call("resume", "1.1", code=2)
    assert "there are secrets in its workflow" in failed.stderr
    assert "joblens run FILE" in failed.stderr
    assert cli.lines("used") == []
    (cli.folder / "go").touch()
    cli.write(FLOW)
    cli.call("resume", "1.1", code=0)
    assert cli.lines("used")[:3] == ["hunter2hunter2", "swordfish77", "rowsecret55"]


def test_a_file_without_secrets_is_stored_as_it_is(cli: WorkflowCli) -> None:
    text = 'name: plain\njobs:\n  - {name: tokens, command: "echo key >> ran"}  # the key to it\n'
    cli.run(text)
    assert cli.newest_run().spec_text == text
    assert kept_files(cli) == []


SHAPES = """
name: shapes
description: nothing of it
env: {API_KEY: zz01-env, SIM_MODE: "{password}"}
variables: {password: zz02-variable}
user_data:
  - {name: credentials, data: {user: zz05-data, more: [zz06-data, {deep: zz07-data}]}}
  - {name: plain, data: {access_token: [zz08-data]}}
  - {name: session_token}
parameters_file: rows.csv
files:
  - {name: made, path: "made_{password}.txt"}
jobs:
  - name: "list_{api_token}"
    command: "echo {api_token} $API_KEY $SIM_MODE >> used"
    parameters: {api_token: [zz03-list, zz04-list]}
  - {name: after_first, command: "true", depends_on: ["list_zz03-list"]}
  - {name: "row_{n}", command: "echo {access_token} >> used", use_parameters_file: true}
  - name: "text_{secret_key}"
    command: "echo {secret_key} >> used"
    parameters: {secret_key: "['zz09-text', 'zz10-text']"}
  - {name: "range_{passcode}", command: "echo {passcode} >> used", parameters: {passcode: "7700011:7700012"}}
  - name: "file_{db_password}"
    command: "echo {db_password} >> used"
    parameters: {db_password: "@tokens.json"}
  - {name: typed, command: "echo {typed_token} >> used", parameters: {typed_token: x}}
  - {name: maker, command: "touch made_{password}.txt; echo made >> used", output_files: [made]}
  - {name: data, command: "joblens user-data get credentials >> used; joblens user-data get plain >> used"}
  - name: sets
    command: joblens user-data set session_token - < session.json
    output_user_data: [session_token]
  - name: uses
    command: "echo '${user_data.input.session_token}' >> used; joblens user-data get session_token >> used"
    input_user_data: [session_token]
  - {name: fails, command: "echo it was {password} >&2; exit 3"}
actions:
  - {trigger_type: on_workflow_complete, action_type: run_commands, commands: ["echo {password} >> used"]}
"""
COMMANDS = """
results 1 --json
show 1 --json
export history -o h.jsonl
export csv -o h.csv
export ro-crate shapes -o crate
plot workflow:1 -o plots
user-data list --run 1
""".strip().splitlines()
MARKED = re.compile(r"zz[0-9][0-9]|770001[12]")


def everything_stored(cli: WorkflowCli) -> dict[str, str]:
    """By where it is: the store unpacked, all that lies beside it, and what jobs left for joblens."""
    store = cli.store()
    try:
        workflow = store.workflows()[0]
        runs = [store.find_run(run.uuid) for run in store.runs(workflow.uuid)]
        records = list(store.records(HistoryQuery(limit=1000)))
        texts = {"workflow": repr(workflow), "runs": repr(runs), "records": repr(records)}
        for run in runs:
            texts[f"events {run.uuid}"] = repr(store.run_events(run.uuid))
    finally:
        store.close()
    state = Path(os.environ["XDG_STATE_HOME"])
    for root in (cli.store_path.parent, state):
        for path in root.rglob("*"):
            if path.is_file() and path.suffix not in (".spec", ".data"):
                texts[str(path)] = path.read_bytes().decode("latin-1")
    outputs = cli.folder / "output"
    texts["names in the output folder"] = repr(sorted(map(str, outputs.rglob("*"))))
    return texts


@pytest.mark.needs("plotly", "matplotlib")
def test_a_secret_of_any_shape_is_stored_and_shown_nowhere_and_jobs_have_it(
    cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (cli.folder / "rows.csv").write_text("n,access_token\n1,zz11-row\n2,zz12-row\n")
    (cli.folder / "tokens.json").write_text('["zz13-file", "zz14-file"]')
    (cli.folder / "session.json").write_text('["zz16-set"]')
    path = cli.write(SHAPES)
    done = cli.call("run", path, "--param", "typed_token=zz15-typed", code=1)
    used = set(MARKED.findall((cli.folder / "used").read_text()))
    assert used == {*(f"zz{number:02}" for number in range(1, 17)), "7700011", "7700012"}
    shown = [line for line in (done.stdout + done.stderr).splitlines() if "it was" not in line]  # a job's own
    texts = everything_stored(cli) | {"the terminal": "\n".join(shown)}
    exports = cli.folder / "exports"
    exports.mkdir()
    for command in COMMANDS:
        result = cli.call(*command.replace(" -o ", " -o exports/").split())
        assert result.code in (0, 3), f"{command}: {result.stderr}"
        texts[command] = result.stdout + result.stderr
    for file in exports.rglob("*"):
        if file.is_file():
            texts[str(file)] = file.read_bytes().decode("latin-1")
    found = {where: set(MARKED.findall(text)) for where, text in texts.items() if MARKED.search(text)}
    assert found == {}
    cli.call("rerun", "1.1", "--all", code=1)
    assert not [where for where, text in everything_stored(cli).items() if MARKED.search(text)]


def test_jobs_with_secrets_in_their_names_are_chosen_and_known_again(cli: WorkflowCli) -> None:
    flow = cli.write(
        "name: named\njobs:\n  - name: 'job_{token}'\n    command: 'echo {token} >> used'\n"
        "    parameters: {token: [zz01-a, zz02-b]}\n"
    )
    cli.call("run", flow, "-q", "--only", "job_zz01-a", code=0)
    cli.call("rerun", "1.1", "--all", "-q", code=0)
    assert cli.lines("used") == ["zz01-a", "zz01-a"]
    cli.call("run", flow, "-q", "--rerun-changed", code=0)
    cli.call("rerun", "1.3", "--changed", "-q", code=0)
    assert cli.lines("used") == ["zz01-a", "zz01-a", "zz02-b"]
    rows = cli.call("results", "1.3", "--json", code=0).json["results"]
    assert [row["job_name"] for row in rows] == ["job_***1", "job_***2"]


@pytest.mark.parametrize("word", ["name", "jobs"])
def test_a_password_like_a_key_of_the_file_does_no_harm(cli: WorkflowCli, word: str) -> None:
    flow = cli.write(f"name: keyed\nenv: {{DB_PASSWORD: {word}}}\njobs: [{{name: a, command: 'true'}}]\n")
    cli.call("run", flow, "-q", code=0)
    assert cli.call("results", "1", "--json", code=0).json["results"][0]["job_name"] == "a"


def test_no_workflow_stays_behind_a_run_that_could_not_be_stored(
    cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("no place for its secrets")

    monkeypatch.setattr("joblens.app.runs.specs.keep_spec", fail)
    store = cli.store()
    flow = cli.write("name: x\nenv: {API_KEY: hunter2hunter2}\njobs: [{name: a, command: a}]\n")
    made = load_spec(str(flow))
    try:
        with pytest.raises(StoreError):
            create_run(store, "flow.yaml", made, RunOptions(), Settings())
        assert store.workflows() == []
    finally:
        store.close()


def test_jobs_named_by_different_secrets_stay_different(cli: WorkflowCli) -> None:
    flow = cli.write(
        "name: two\nvariables: {secret_one: eeee5xyz, secret_two: ffff5xyz}\njobs:\n"
        "  - {name: 'j_{api_token}', command: 'echo one', parameters: {api_token: [aaaa5xyz]}}\n"
        "  - {name: 'j_{db_password}', command: 'echo two', parameters: {db_password: [cccc5xyz]}}\n"
        "  - {name: 'j_{secret_one}', command: 'echo three'}\n"
        "  - {name: 'j_{secret_two}', command: 'echo four'}\n"
    )
    cli.call("run", flow, "-q", code=0)
    rows = cli.call("results", "1", "--json", code=0).json["results"]
    names = [row["job_name"] for row in rows]
    assert len({*names}) == 4
    assert not [name for name in names if "5xyz" in name]
    printed = [cli.call("logs", name, code=0).stdout for name in names]
    assert sorted(printed) == ["four\n", "one\n", "three\n", "two\n"]


@pytest.mark.parametrize(
    "secret",
    ["env: {POSTGRES_PASSWORD: postgres}", "variables: {db_password: postgres}"],
)
def test_a_name_that_was_written_with_a_word_that_is_a_secret_stays(cli: WorkflowCli, secret: str) -> None:
    flow = cli.write(
        f"name: load_postgres\n{secret}\nfiles: [{{name: table, path: out/postgres.csv}}]\njobs:\n"
        "  - {name: start_postgres, output_files: [table],\n"
        "     command: 'mkdir -p out; echo a > out/postgres.csv'}\n"
        "  - {name: 'read_postgres_{n}', command: 'cat out/postgres.csv', input_files: [table],\n"
        "     depends_on: [start_postgres], parameters: {n: [1, 2]}}\n"
    )
    cli.call("run", flow, "-q", "--only", "*_postgres*", code=0)
    rows = cli.call("results", "1", "--json", code=0).json["results"]
    assert [row["job_name"] for row in rows] == ["start_postgres", "read_postgres_1", "read_postgres_2"]
    assert cli.call("logs", "read_postgres_2", code=0).stdout == "a\n"
    assert "postgres" not in repr(
        [cli.records()["start_postgres"].job.argv, cli.records()["start_postgres"].job.env]
    )
    assert "Nothing needs to run again" in cli.call("rerun", "1.1", "--changed", code=0).stdout
    assert "PASSWORD: postgres" not in cli.newest_run().spec_text


def test_a_file_named_by_a_secret_is_known_again(cli: WorkflowCli) -> None:
    flow = cli.write(
        "name: named\nvariables: {password: zz02-variable}\n"
        "files: [{name: made, path: 'made_{password}'}]\njobs:\n"
        "  - {name: a, command: 'touch made_{password}', output_files: [made]}\n"
        "  - {name: b, command: 'true', input_files: [made]}\n"
    )
    cli.call("run", flow, "-q", code=0)
    assert "zz02" not in repr(cli.records())
    assert "Nothing needs to run again" in cli.call("rerun", "1.1", "--changed", code=0).stdout


def test_user_data_that_is_set_before_a_run_begins_is_hidden(cli: WorkflowCli) -> None:
    flow = cli.write(
        "name: later\nuser_data: [{name: api_token}]\njobs:\n"
        "  - name: a\n    command: echo '${user_data.input.api_token}' >> used\n"
        "    input_user_data: [api_token]\n"
    )
    cli.call("workflows", "create-from-spec", flow, code=0)
    result = cli.call("user-data", "set", "--run", "1.1", "api_token", '"zz01-set"', "--json", code=0)
    assert result.json["data"] == "***"
    listed = cli.call("user-data", "list", "--run", "1.1", code=0).stdout
    assert listed == 'api_token = "***"\n'
    wrong = cli.call("user-data", "set", "--run", "1.1", "api_token", "zz02-set", code=2)
    assert not [where for where, text in everything_stored(cli).items() if MARKED.search(text)]
    assert not MARKED.search(wrong.stderr)
    assert cli.call("user-data", "get", "--run", "1.1", "api_token", code=0).json == "zz01-set"
    cli.call("resume", "1.1", "-q", code=0)
    assert cli.lines("used") == ['"zz01-set"']


@pytest.mark.parametrize(
    ("host", "url", "engine", "is_in_store"),
    [
        ("elsewhere", "postgresql://x/y", "local", True),
        ("elsewhere", None, "slurm", True),
        ("elsewhere", None, "local", False),
        (os.uname().nodename, "postgresql://x/y", "local", False),
    ],
)
def test_only_the_store_carries_a_secret_to_another_host(
    cli: WorkflowCli, host: str, url: str | None, engine: str, is_in_store: bool
) -> None:
    settings = Settings(store=StoreSettings(url=url or str(cli.store_path)))
    flow = cli.write("name: x\nuser_data: [{name: api_token}]\njobs: [{name: a, command: a}]\n")
    store, made = cli.store(), load_spec(str(flow))
    try:
        run = create_run(store, "", made, RunOptions(engine=engine), Settings())
        set_user_data(store, replace(run, host=host), "api_token", "zz01-set", settings)
        (event,) = [event for _, event in store.run_events(run.uuid)]
    finally:
        store.close()
    assert ("zz01" in repr(event)) is is_in_store
