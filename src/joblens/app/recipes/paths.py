"""Output paths of a recipe's job, checked before anything is written."""

import contextlib
import errno
import fnmatch
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from joblens.app.recipes.loader import LoadedRecipe, problem_at
from joblens.data.base.job_folder import JobFolder
from joblens.model.errors import RecipeError
from joblens.model.recipes.recipe import Recipe, RecipePlan
from joblens.model.values.units import format_bytes
from joblens.plan.recipes.job_folder import disk_need

_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
_OWN_FILES = ("events.jsonl", "job_summary.json")
_NOT_READ = (".", "_")  # names in folders of a dataset that begin like this are skipped


def check_paths(loaded: LoadedRecipe, plan: RecipePlan) -> None:
    """Raises RecipeError with every path that is not writable, by its key."""
    seen: dict[str, str] = {}  # by error: one folder may have several uses
    for key, folder in _folders(plan):
        problem = _write_problem(folder)
        if problem:
            seen.setdefault(problem, _key_written(loaded, key))
    problems = [problem_at(loaded, key, problem) for problem, key in seen.items()]
    export = plan.recipe.export_path
    if os.path.isdir(export):
        problems.append(problem_at(loaded, "export_path", f"{export} is a directory; give a file in it"))
    if problems:
        hint = "choose other directories with work_dir (--work-dir) and export_path"
        raise RecipeError.of(loaded.path, problems, hint)


def disk_warnings(plan: RecipePlan, kinds: Sequence[str], free: "Free | None" = None) -> list[str]:
    """Returns one warning per disk that may be too small. `free`: a folder -> its disk and free bytes."""
    free = free or _free
    need, folder = disk_need(plan, kinds), JobFolder.of_plan(plan)
    export = free(os.path.dirname(plan.recipe.export_path))
    job, checkpoints = free(folder.path), free(folder.checkpoints)
    needs: dict[int, int] = {}
    needs[job.disk] = need.most_bytes - need.checkpoint_bytes - _size_below(folder.path)
    needs[checkpoints.disk] = needs.get(checkpoints.disk, 0) + need.checkpoint_bytes
    if export.disk != job.disk:  # parts are copied there, not moved
        needs[export.disk] = needs.get(export.disk, 0) + need.export_bytes
    disks = {each.disk: each for each in (export, checkpoints, job)}
    return [
        f"disk: the job may need {format_bytes(needed)} at {disk.folder}, where "
        f"{format_bytes(disk.free_bytes)} are free; free space, or choose another directory with work_dir, "
        "checkpoint_dir or export_path"
        for disk in disks.values()
        if (needed := needs.get(disk.disk, 0)) > disk.free_bytes
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
    """Returns bytes that a resumed job has already written."""
    sizes = 0
    for above, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                sizes += os.lstat(os.path.join(above, name)).st_blocks * 512
    return sizes


def found_as_input(recipe: Recipe, job_dir: str) -> str | None:
    """Returns the position in the dataset where the next job would find this job, or its rows."""
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
    """Jobs are next to the export by default."""
    written = loaded.document.value
    is_reported = key in loaded.options or (isinstance(written, dict) and key in written)
    return "export_path" if key == "work_dir" and not is_reported else key


def _write_problem(folder: str) -> str:
    """Returns '' if files can be created there, or in a folder that is yet to be created."""
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
    """Creates a file without a name, which is gone when it is closed; if unsupported, a temporary one."""
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            raise
        with tempfile.TemporaryFile(dir=folder):
            pass


def _would_find(written: str, path: str, suffixes: tuple[str, ...]) -> bool:
    """Searches like datasets: folders with everything below them, patterns with the folders they match."""
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
    names, parts = path.split("/"), pattern.split("/")
    return len(names) == len(parts) and all(map(fnmatch.fnmatchcase, names, parts))
