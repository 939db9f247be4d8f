"""What a job prints is its own, and what joblens keeps of it has none of the job's secrets."""

import os
import sys
from pathlib import Path

import pytest

import joblens
from joblens.model.history import HistoryQuery
from tests.integration.workflow_cli import WorkflowCli

SECRET = "S3CRETparam2"
PRINTS = f"echo {'x' * 192} {SECRET} >&2; exit 1"  # the text of an error ends within it
WAYS = {
    "param": ("run", "--param", f'password=["{SECRET}"]'),
    "env": ("run", "--env", f"API_TOKEN={SECRET}"),
    "submit": ("submit", "--wait", "--env", f"API_TOKEN={SECRET}"),
}


def stored(cli: WorkflowCli) -> str:
    store = cli.store()
    try:
        return repr(list(store.records(HistoryQuery(limit=100))))
    finally:
        store.close()


@pytest.mark.parametrize("way", WAYS)
def test_the_last_lines_of_a_job_have_no_secret_of_its_command(cli: WorkflowCli, way: str) -> None:
    script = cli.write(PRINTS, "fails.sh")
    cli.call(*WAYS[way], "--", "sh", script, code=1)
    text = stored(cli)
    assert "exit code 1: xxx" in text
    assert "S3CR" not in text
    cli.call("export", "history", "-o", "h.jsonl", code=0)
    exported = (cli.folder / "h.jsonl").read_text()
    assert "exit code 1: xxx" in exported
    assert "S3CR" not in exported


def test_nor_do_those_of_the_python_api(cli: WorkflowCli) -> None:
    script, url = str(cli.write(PRINTS, "fails.sh")), str(cli.store_path)
    result = joblens.run(["sh", script], env={"API_TOKEN": SECRET}, store=url)
    (one,) = joblens.map_commands([["sh", script]], env={"API_TOKEN": SECRET}, store=url)
    for text in (repr(result.record), repr(one.record), stored(cli)):
        assert "xxx" in text
        assert "S3CR" not in text


def test_user_data_that_another_job_has_set_is_hidden(
    cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (cli.folder / "token.json").write_text(f'"{SECRET}"')
    cli.run(
        "name: x\nuser_data: [{name: api_token}]\njobs:\n"
        "  - name: a\n    command: joblens user-data set api_token - < token.json\n"
        "    output_user_data: [api_token]\n"
        "  - {name: b, command: 'cat token.json >&2; exit 1', depends_on: [a]}\n",
        code=1,
    )
    assert "exit code 1: " in stored(cli)
    assert "S3CR" not in stored(cli)
