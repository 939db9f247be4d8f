"""Changes of many jobs at once: each as if requested alone, with its own audit entry."""

import enum
from typing import Annotated

from msgspec import Meta, Struct

from joblens.app.server.changes import Changer, RerunRequest, TagChange
from joblens.app.server.jobs import Word
from joblens.model.errors import AccessDenied, InputError, JoblensError


class BulkAction(enum.StrEnum):
    CANCEL = "cancel"
    RERUN = "rerun"
    TAG = "tag"
    DELETE = "delete"


class BulkChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    action: BulkAction
    jobs: Annotated[tuple[Word, ...], Meta(min_length=1, max_length=1000)]  # as {job} of paths
    tags: TagChange = TagChange()  # for the action tag


class Refusal(Struct, frozen=True, kw_only=True):
    job: str
    detail: str
    hint: str


class BulkResult(Struct, frozen=True, kw_only=True):
    changed: int
    refused: tuple[Refusal, ...]
    new: tuple[int, ...] = ()  # numbers of jobs that a rerun started


def change_all(changer: Changer, change: BulkChange) -> BulkResult:
    """Raises AccessDenied if the caller may not make such changes at all."""
    if change.action is BulkAction.TAG and not (change.tags.add or change.tags.remove):
        raise InputError("tags to add or to remove are missing", hint='send "tags": {"add": ["NAME"]}')
    changed, refused, new = 0, [], []
    for job in dict.fromkeys(change.jobs):
        try:
            number = _change(changer, change, job)
        except AccessDenied:
            if changed == 0:
                raise
            refused.append(Refusal(job=job, detail="not allowed", hint=""))
        except JoblensError as error:
            refused.append(Refusal(job=job, detail=str(error), hint=error.hint or ""))
        else:
            changed += 1
            if number is not None:
                new.append(number)
    return BulkResult(changed=changed, refused=tuple(refused), new=tuple(new))


def _change(changer: Changer, change: BulkChange, job: str) -> int | None:
    """Returns the number of a new job."""
    match change.action:
        case BulkAction.CANCEL:
            changer.cancel(job)
        case BulkAction.RERUN:
            return changer.rerun(job, RerunRequest(), None)[0].number
        case BulkAction.TAG:
            changer.tag(job, change.tags)
        case BulkAction.DELETE:
            changer.delete(job)
    return None
