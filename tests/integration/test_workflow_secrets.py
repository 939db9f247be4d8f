"""Secrets in a workflow file: nothing that lasts has them, and runs go on all the same."""

import os
import stat
from pathlib import Path

import pytest

from joblens.app.places import spool_dir
from tests.integration.workflow_desk import WorkflowDesk

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
def desk(desk: WorkflowDesk, tmp_path: Path) -> WorkflowDesk:
    (tmp_path / "rows.csv").write_text("i,access_token\n1,rowsecret55\n")
    return desk


def kept_files(desk: WorkflowDesk) -> list[Path]:
    return sorted(Path(spool_dir(str(desk.store_path))).glob("*.spec"))


def places_of_secrets(desk: WorkflowDesk) -> list[tuple[str, str]]:
    """In everything joblens has written, but for the private files that are there for it."""
    state = Path(os.environ["XDG_STATE_HOME"])
    files = [path for root in (desk.store_path.parent, state) for path in root.rglob("*") if path.is_file()]
    given = {desk.folder / "flow.yaml", desk.folder / "rows.csv", desk.folder / "used"}
    texts = {path: path.read_bytes() for path in files if path.suffix != ".spec" and path not in given}
    run = desk.newest_run()  # the store packs it
    texts[Path("run")] = repr(run).encode()
    return [(str(path), word) for path, text in texts.items() for word in SECRETS if word.encode() in text]


def test_no_secret_of_a_file_reaches_the_store_and_a_resume_has_them(desk: WorkflowDesk) -> None:
    process_path = desk.write(FLOW)
    desk.call("run", process_path, "--json", code=1)
    used = "hunter2hunter2 swordfish77 rowsecret55"
    assert (desk.folder / "used").read_text() == f"{used}\n"
    assert places_of_secrets(desk) == []
    (kept,) = kept_files(desk)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    text = desk.newest_run().spec_text
    assert "MODE: fast" in text, "what is no secret stays as it was written"
    assert "depends_on_regexes" in text
    (desk.folder / "go").touch()
    desk.write("changed: since\n")
    desk.call("rerun", "1.1", "--failed", code=0)
    assert (desk.folder / "used").read_text() == f"{used}\n{used}\nafter fast\n"
    desk.call("run-jobs", "1", code=0)
    assert (desk.folder / "used").read_text().count(used) == 3
    assert places_of_secrets(desk) == []
    assert len(kept_files(desk)) == 3
    rows = desk.call("results", "1", "--json", code=0).json["results"]
    assert [row["job_name"] for row in rows] == ["use_1", "after"]


def test_a_run_in_the_background_has_its_secrets(desk: WorkflowDesk) -> None:
    (desk.folder / "go").touch()
    desk.write(FLOW.replace("swordfish77", "x"))
    label = desk.call("submit", "flow.yaml", "--param", "password=swordfish77", code=0).stdout.strip()
    desk.call("wait", label, code=0)
    assert desk.lines("used")[:3] == ["hunter2hunter2", "swordfish77", "rowsecret55"]
    assert places_of_secrets(desk) == []


def test_without_the_private_file_the_workflow_file_will_do_and_else_it_is_said_what_is_missing(
    desk: WorkflowDesk,
) -> None:
    desk.write(FLOW)
    desk.call("workflows", "create-from-spec", "flow.yaml", code=0)
    (kept,) = kept_files(desk)
    kept.unlink()
    desk.write(FLOW.replace("MODE: fast", "MODE: slow"))
    failed = desk.call("resume", "1.1", code=2)
    assert "there are secrets in its workflow" in failed.stderr
    assert "joblens run FILE" in failed.stderr
    assert desk.lines("used") == []
    (desk.folder / "go").touch()
    desk.write(FLOW)
    desk.call("resume", "1.1", code=0)
    assert desk.lines("used")[:3] == ["hunter2hunter2", "swordfish77", "rowsecret55"]


def test_a_file_without_secrets_is_stored_as_it_is(desk: WorkflowDesk) -> None:
    text = 'name: plain\njobs:\n  - {name: tokens, command: "echo key >> ran"}  # the key to it\n'
    desk.run(text)
    assert desk.newest_run().spec_text == text
    assert kept_files(desk) == []
