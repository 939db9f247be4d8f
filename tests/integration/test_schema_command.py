"""`joblens schema` as people call it."""

import json
from pathlib import Path

from joblens.spec.workflows.schema import workflow_schema
from joblens.web.rpc import proto_text
from tests.conftest import RunJoblens


def test_the_schema_is_printed(joblens: RunJoblens) -> None:
    assert json.loads(joblens("schema", code=0).stdout) == workflow_schema()


def test_the_schema_is_written_to_a_file(joblens: RunJoblens, tmp_path: Path) -> None:
    done = joblens("schema", "-o", "workflow.schema.json", code=0)
    assert done.stdout == ""
    assert json.loads((tmp_path / "workflow.schema.json").read_text()) == workflow_schema()


def test_json_tells_which_file_was_written(joblens: RunJoblens) -> None:
    assert json.loads(joblens("schema", "-o", "s.json", "--json", code=0).stdout) == {"file": "s.json"}


def test_the_file_of_grpc_clients_is_printed(joblens: RunJoblens) -> None:
    assert joblens("schema", "--grpc", code=0).stdout == proto_text()


def test_a_place_that_cannot_be_written_is_bad_input(joblens: RunJoblens) -> None:
    done = joblens("schema", "-o", "no/such/folder/s.json", code=2)
    assert "no/such/folder/s.json: cannot be written: No such file or directory" in done.stderr
