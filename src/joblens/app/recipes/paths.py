"""The places that a recipe's job writes to, looked at before anything is written to any of them."""

import contextlib
import errno
import fnmatch
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from joblens.app.recipes.loader import LoadedRecipe, problem_at, recipe_error
from joblens.data.base.job_folder import JobFolder
from joblens.model.recipes.recipe import Recipe, RecipePlan
from joblens.model.values.units import format_bytes
from joblens.plan.recipes.job_folder import disk_need

_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
_OWN_FILES = ("events.jsonl", "job_summary.json")
_NOT_READ = (".", "_")  # names in folders of a dataset that begin so


def check_places(loaded: LoadedRecipe, plan: RecipePlan) -> None:
    """Raises RecipeError with every place that cannot be written, by its key."""
    seen: dict[str, str] = {}  # by what is wrong: one folder may be the place of several things
    for key, folder in _folders(plan):
        why = _why_not(folder)
        if why:
            seen.setdefault(why, _key_written(loaded, key))
    problems = [problem_at(loaded, key, why) for why, key in seen.items()]
    export = plan.recipe.export_path
    if os.path.isdir(export):
        problems.append(problem_at(loaded, "export_path", f"{export} is a directory; give a file in it"))
    if problems:
        hint = "choose other directories with work_dir (--work-dir) and export_path"
        raise recipe_error(loaded.path, problems, hint)


def disk_warnings(plan: RecipePlan, kinds: Sequence[str], free: "Free | None" = None) -> list[str]:
    """One per disk that may be too small for what the job writes there. `free`: a folder -> which disk it is
    on, and how many bytes are free."""
    free = free or _free
    need, folder = disk_need(plan, kinds), JobFolder.of_plan(plan)
    export = free(os.path.dirname(plan.recipe.export_path))
    job, checkpoints = free(folder.path), free(folder.checkpoints)
    needs: dict[int, int] = {}
    needs[job.disk] = need.most_bytes - need.checkpoint_bytes - _size_below(folder.path)
    needs[checkpoints.disk] = needs.get(checkpoints.disk, 0) + need.checkpoint_bytes
    if export.disk != job.disk:  # parts are copied there, not moved
        needs[export.disk] = needs.get(export.disk, 0) + need.export_bytes
    places = {each.disk: each for each in (export, checkpoints, job)}
    return [
        f"disk: the job may need {format_bytes(needed)} at {place.folder}, where "
        f"{format_bytes(place.free_bytes)} are free; free space, or choose another directory with work_dir, "
        "checkpoint_dir or export_path"
        for place in places.values()
        if (needed := needs.get(place.disk, 0)) > place.free_bytes
    ]


class Disk(Struct, frozen=True):
    disk: int
    folder: str
    free_bytes: int


Free = Callable[[str], Disk]


def _free(folder: str) -> Disk:
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    found = os.statvfs(folder)
    return Disk(os.stat(folder).st_dev, folder, found.f_bavail * found.f_frsize)


def _size_below(folder: str) -> int:
    """Bytes that a resumed job has written already."""
    sizes = 0
    for above, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                sizes += os.lstat(os.path.join(above, name)).st_blocks * 512
    return sizes


def is_read_again(recipe: Recipe, job_dir: str) -> str | None:
    """The place in the dataset where this job, or its rows, would be found by the next one."""
    own = [
        recipe.export_path,
        os.path.join(job_dir, "events.jsonl"),
        os.path.join(job_dir, "job_summary.json"),
    ]
    for written in recipe.dataset_path:
        for path in map(os.path.realpath, own):
            if _would_find(written, path, recipe.suffixes):
                return path if path == os.path.realpath(recipe.export_path) else job_dir
    return None


def _folders(plan: RecipePlan) -> Iterator[tuple[str, str]]:
    folder, recipe = JobFolder.of_plan(plan), plan.recipe
    yield "work_dir", folder.path
    yield "export_path", os.path.dirname(recipe.export_path)
    if recipe.checkpoint_dir:
        yield "checkpoint_dir", folder.checkpoints
    if recipe.event_log_dir:
        yield "event_log_dir", folder.event_log_dir


def _key_written(loaded: LoadedRecipe, key: str) -> str:
    """Jobs lie beside the export where nobody says where."""
    written = loaded.document.value
    is_said = key in loaded.options or (isinstance(written, dict) and key in written)
    return "export_path" if key == "work_dir" and not is_said else key


def _why_not(folder: str) -> str:
    """'' when files can be made there, or in a folder that is still to be made."""
    there = folder
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        return f"{there} is not a directory"
    try:
        _make_a_file(there)
    except OSError as error:
        return f"cannot write to {there}: {error.strerror}"
    return ""


def _make_a_file(folder: str) -> None:
    """One without a name, which is gone when it is closed; where there is no such thing, one for a moment."""
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            raise
        with tempfile.TemporaryFile(dir=folder):
            pass


def _would_find(written: str, path: str, suffixes: tuple[str, ...]) -> bool:
    """As datasets are searched: folders with all that is below them, patterns with the folders they match."""
    base = os.path.realpath(written)
    if os.path.isdir(base):
        return _is_below(path, base, suffixes)
    if os.path.exists(base):
        return path == base
    above = path
    while above != os.path.dirname(above):
        if _matches(above, base):
            return above == path or _is_below(path, above, suffixes)
        above = os.path.dirname(above)
    return False


def _is_below(path: str, folder: str, suffixes: tuple[str, ...]) -> bool:
    if not path.startswith(folder.rstrip("/") + "/"):
        return False
    names = os.path.relpath(path, folder).split("/")
    if any(name.startswith(_NOT_READ) for name in names):
        return False
    return not suffixes or path.endswith(suffixes)


def _matches(path: str, pattern: str) -> bool:
    if "**" in pattern:
        return fnmatch.fnmatchcase(path, pattern.replace("**/", "*"))
    names, wanted = path.split("/"), pattern.split("/")
    return len(names) == len(wanted) and all(map(fnmatch.fnmatchcase, names, wanted))
