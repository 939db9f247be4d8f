"""Names of jobs and paths of files in which the value of a secret occurs, and how they are shown.

Only what a parameter or a variable has put there is hidden. A name that was written so is no secret, and jobs
are found by it."""

from collections.abc import Iterator, Mapping
from typing import Any

from joblens.model.redaction.secrets import SecretValues
from joblens.model.runs.plan import Plan
from joblens.plan.commands.substitution import pattern_of

_NAMES = ("name", "path", "label")


def shown_names(document: Any, plan: Plan, secrets: SecretValues, put_in: SecretValues) -> dict[str, str]:
    """`document`: as it was written; `put_in`: of the secrets, those that {name} may stand for. Different
    names are shown as different texts."""
    if not secrets or not isinstance(document, Mapping):
        return {}
    written = dict.fromkeys(_written(document))
    shown = {text: text for text in written if secrets.hide(text) != text}
    made = [
        (text, template)
        for text, template in _made(document, plan)
        if text not in written and secrets.hide(text) != text
    ]
    taken = {*written, *(job.name for job in plan.jobs)}
    for text, template in made:
        own = SecretValues({each: other for each, other in put_in.shown.items() if each not in template})
        hidden = first = own.hide(text)
        number = 1
        while hidden != text and hidden in taken and text not in shown:
            number += 1
            hidden = f"{first}_{number}"
        taken.add(hidden)
        shown.setdefault(text, hidden)
    return shown


def _written(document: Mapping[str, Any]) -> Iterator[str]:
    sections = [section for section in document.values() if isinstance(section, list)]
    entries = [document, *(entry for section in sections for entry in section if isinstance(entry, Mapping))]
    for entry in entries:
        yield from (entry[key] for key in _NAMES if isinstance(entry.get(key), str))


def _made(document: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, str]]:
    """Yields names, each with the text that it was made from."""
    entries = document["jobs"]
    for job in plan.jobs:
        if job.spawned_by >= 0:
            continue  # no entry of the file
        entry = entries[job.spec_job]
        yield job.name, entry["name"]
        yield job.label, entry.get("label") or ""
    sections = ("files", "datasets")
    written = {key: [one for one in document.get(key) or () if isinstance(one, Mapping)] for key in sections}
    templates = [(pattern_of(text), text) for text in _written(written) if "{" in text]
    files = [(file.name, file.path) for file in plan.files]
    for texts in (*files, *((each.name, each.path) for each in plan.datasets)):
        for text in texts:
            yield text, next((one for pattern, one in templates if pattern.fullmatch(text)), "")
