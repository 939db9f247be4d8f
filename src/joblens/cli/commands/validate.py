"""`joblens validate`: checks workflow files and shows their needs."""

from typing import TYPE_CHECKING, Any

import click

from joblens.cli.context import Session
from joblens.cli.options.common import complete_file, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.cli.options.spec import param_option, params_of
from joblens.model.errors import SpecError

if TYPE_CHECKING:
    from joblens.app.workflows.validation import SpecCheck


@click.command("validate", cls=GroupedCommand)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, shell_complete=complete_file)
@param_option
@click.option(
    "--engine",
    type=click.Choice(["local", "celery", "ray", "slurm"]),
    default="local",
    help="Warn about keys that have no effect with this engine. Default: local.",
)
@shared_options
def command(session: Session, files: tuple[str, ...], params: tuple[str, ...], engine: str) -> None:
    """Check workflow files without running anything.

    Exit code 0: all files are valid; 2: some are not; every problem is reported with its position.
    """
    from joblens.app.workflows.loader import load_spec
    from joblens.app.workflows.validation import check_spec
    from joblens.views.runs.plan import render_check

    values = params_of(params)
    answers: list[dict[str, Any]] = []
    bad: list[SpecError] = []
    for file in files:
        try:
            check = check_spec(load_spec(file, values, keeps_spec=True), engine=engine)
        except SpecError as error:
            bad.append(error)
            answers.append({"file": file, "valid": False, "problems": list(error.problems)})
            continue
        answers.append(_answer(file, check))
        if not session.json:
            lines = render_check(
                file, check.jobs, check.stages, check.largest, check.warnings, paint=session.palette
            )
            session.write_lines(lines)
    if session.json:
        session.write_json(answers)
    if not bad:
        return
    if session.json:
        raise SystemExit(SpecError.exit_code)
    if len(bad) == 1:
        raise bad[0]
    problems = [problem for error in bad for problem in error.problems]
    raise SpecError("\n".join([f"{len(bad)} files are not valid:", *(f"  {one}" for one in problems)]))


def _answer(file: str, check: "SpecCheck") -> dict[str, Any]:
    largest = check.largest
    return {
        "file": file,
        "valid": True,
        "jobs": check.jobs,
        "stages": check.stages,
        "largest": {
            "num_cpus": largest.cpus,
            "memory_bytes": largest.memory_bytes,
            "num_gpus": largest.gpus,
            "runtime_seconds": largest.timeout_s,
        },
        "warnings": list(check.warnings),
    }
