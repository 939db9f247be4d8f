"""`joblens schema`: prints the JSON Schema of workflow files, for editors, or the file of gRPC clients."""

import click
from msgspec import json

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.errors import InputError


@click.command("schema", cls=GroupedCommand)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE.")
@click.option(
    "--grpc", is_flag=True, help="Print joblens.proto, from which gRPC clients are generated, instead."
)
@shared_options
def command(session: Session, output: str | None, grpc: bool) -> None:
    """Print the JSON Schema of workflow files.

    Editors use it to complete keys, show their meaning and mark mistakes.
    """
    text = _proto() if grpc else _workflow_schema()
    if output in (None, "-"):
        session.write(text)
        return
    assert output is not None
    try:
        with open(output, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror or error}") from error
    if session.json:
        session.write_json({"file": output})
    else:
        session.note(f"schema written to {output}")


def _workflow_schema() -> str:
    from joblens.spec.workflows.schema import workflow_schema

    return json.format(json.encode(workflow_schema()), indent=2).decode() + "\n"


def _proto() -> str:
    from joblens.web.rpc import proto_text

    return proto_text()
