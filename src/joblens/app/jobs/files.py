"""Which files a single command reads and is to make: those it was said to, and those it names."""

import os
from collections.abc import Sequence

from msgspec.structs import replace

from joblens.app.jobs.requests import Request
from joblens.model.errors import InputError
from joblens.model.jobs.run_link import FileStamp
from joblens.model.settings import Settings
from joblens.probes.provenance.file_names import as_text, remembered_path


def inputs_of(request: Request, shown: Sequence[str], cwd: str, settings: Settings) -> tuple[FileStamp, ...]:
    """`shown`: its words as they may be remembered. Raises InputError for a file that is not there. What is
    in them is read beside the job."""
    is_named = settings.provenance.enabled and request.container is None
    if not request.inputs and not (is_named and _has_arguments(request)):
        return ()
    from joblens.agent.provenance.job_files import expanded, named_inputs, stamp

    paths: dict[str, None] = {}
    for asked in request.inputs:
        found = expanded((asked,), cwd)
        if not found or not all(os.path.exists(remembered_path(path, cwd)) for path in found):
            raise InputError(f"--input {asked}: there is no such file", hint=_hint(request, cwd))
        paths |= dict.fromkeys(map(as_text, found))
    stamps = [stamp(path, cwd) for path in paths]
    if is_named:
        made = {os.path.join(cwd, path) for path in expanded(request.outputs, cwd)}
        stamps += [
            replace(stamp(path, cwd), is_guess=True)
            for path in named_inputs(shown, cwd, is_shell=request.shell is not None)
            if path not in paths and os.path.join(cwd, path) not in made
        ]
    return tuple(stamps)


def outputs_asked(request: Request, current: str) -> tuple[str, ...]:
    """A container is given files of here, wherever it works inside."""
    if request.container is None:
        return request.outputs
    return tuple(os.path.join(current, path) for path in request.outputs)


def _has_arguments(request: Request) -> bool:
    return len(request.argv) > 1 or request.shell is not None


def _hint(request: Request, cwd: str) -> str:
    return f"it is looked for in {cwd}, where the job runs" if request.cwd else ""
