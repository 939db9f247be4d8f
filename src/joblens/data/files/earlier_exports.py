"""Files of earlier exports to the same path that a new one does not replace, since it has other shards."""

import contextlib
import glob
import os
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from joblens.data.base.job_folder import JobFolder
from joblens.model.recipes.recipe import RecipePlan


class _Earlier(Struct, frozen=True):
    asked_path: str
    paths: tuple[str, ...]


class _Manifest(Struct, frozen=True):
    export: _Earlier
    sizes: dict[str, int]


def remove_earlier(plan: RecipePlan, paths: Sequence[str]) -> None:
    """Whoever reads the folder would have rows twice. Only what a job of the same folder of jobs has written
    to that very path, and what is as it left it, is taken away."""
    kept = {os.path.realpath(path) for path in (*paths, *(file.path for file in plan.inputs))}
    for earlier in _manifests(os.path.dirname(plan.job_dir)):
        if earlier.export.asked_path != plan.recipe.export_path:
            continue
        for path in earlier.export.paths:
            with contextlib.suppress(FileNotFoundError):
                if os.path.realpath(path) not in kept and os.path.getsize(path) == earlier.sizes.get(path):
                    os.unlink(path)


def _manifests(folder: str) -> Iterator[_Manifest]:
    decoder = msgspec.json.Decoder(_Manifest)
    for job_dir in glob.glob(os.path.join(glob.escape(folder), "*", "")):
        own = JobFolder(job_dir)
        for path in (own.export_manifest, own.earlier_export):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                with open(path, "rb") as file:
                    found = decoder.decode(file.read())
                yield found
