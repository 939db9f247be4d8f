"""Scripts that commands name: looked for in the directory a run is started from, not beside its file."""

import os
import re

from joblens.model.runs.plan import Plan

_SCRIPT = re.compile(r"[\w.][\w./-]*")
_ENDINGS = (".py", ".sh", ".bash", ".r", ".R", ".jl", ".pl", ".rb", ".js", ".m")


def misplaced_scripts(plan: Plan, spec_path: str, cwd: str) -> list[str]:
    """A warning, when there are scripts that are not in `cwd` and lie beside the file."""
    folder = os.path.dirname(os.path.abspath(spec_path))
    if os.path.realpath(folder) == os.path.realpath(cwd):
        return []
    seen: set[str] = set()
    for job in plan.jobs:
        for word in _scripts(job.command):
            if word in seen:
                continue
            seen.add(word)
            if not os.path.exists(os.path.join(cwd, word)) and os.path.exists(os.path.join(folder, word)):
                where = f"{word}, which is not in this directory but beside the file"
                go = f"commands run where joblens is started: cd {os.path.relpath(folder, cwd)} first"
                return [f"job '{job.name}' names {where}; {go}"]
    return []


def _scripts(command: str) -> list[str]:
    """A program or script named by a relative path."""
    words = command.split()
    found = [word for word in words if word.endswith(_ENDINGS) and _SCRIPT.fullmatch(word)]
    if words and "/" in words[0] and _SCRIPT.fullmatch(words[0]):
        found.append(words[0])
    return found
