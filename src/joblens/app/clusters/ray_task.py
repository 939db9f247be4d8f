"""What a measured function has to do with Ray: where it runs, and what `ray.remote` has made of it already.

Ray itself is never imported here: who is not inside it pays nothing for it."""

import sys
from collections.abc import Callable
from typing import Any

from joblens.model.errors import InputError
from joblens.model.jobs.job import Placement


def ray_placement() -> Placement | None:
    """Of the task or actor that this runs in; None outside of Ray, and in a program that only asks it."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    task = context.get_task_id()
    if task is None or context.worker.mode != ray.WORKER_MODE:
        return None
    actor = context.get_actor_id()
    asked = {name: f"{amount:g}" for name, amount in (context.get_assigned_resources() or {}).items()}
    if actor is not None:
        asked["actor"] = actor
    return Placement(engine="ray", job_id=task, node_id=context.get_node_id(), asked=asked)


def is_remote(thing: Any) -> bool:
    """Whether `ray.remote` has made it."""
    return hasattr(thing, "__ray_metadata__") or type(thing).__module__ == "ray.remote_function"


def measured_remote(thing: Any, decorate: Callable[[Any], Any]) -> Any:
    """The same again for Ray, with what is inside measured. There is no public way in, so a Ray that hides it
    elsewhere is told of."""
    metadata = getattr(thing, "__ray_metadata__", None)
    inside = (
        getattr(thing, "_function", None)
        if metadata is None
        else getattr(metadata.modified_class, "__ray_actor_class__", None)
    )
    if inside is None or not hasattr(thing, "_default_options"):
        raise InputError(
            "this version of Ray does not show what is inside of a remote function",
            hint="write @ray.remote above @joblens.measured",
        )
    options = {name: value for name, value in (thing._default_options or {}).items() if value is not None}  # noqa: SLF001
    remote = sys.modules["ray"].remote
    made = decorate(inside)
    return remote(**options)(made) if options else remote(made)
