"""Run by itself: jobs of a recipe whose processes kill themselves at one step of putting the export together,
gone on with by executors that are left alone. A step is a call that changes files."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from joblens.data.executor.coordinator import Coordinator
from joblens.data.executor.executor import execute
from joblens.data.partition import work
from joblens.model.recipes.recipe import RecipePlan
from tests.integration import recipe_executor as executors

_CHANGING = ("unlink", "replace", "copy_file_range", "ftruncate")


def forked(job_dir: str, kill_at: int | None) -> int | None:
    """-> its exit code; None: it was killed."""
    child = os.fork()
    if not child:
        _carry_out(job_dir, kill_at)
    _, status = os.waitpid(child, 0)
    return None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _carry_out(job_dir: str, kill_at: int | None) -> NoReturn:
    code = 99
    try:
        if kill_at is not None:
            _count_steps(kill_at, os.getpid())
        code = execute(job_dir, lambda: None).exit_code
    finally:
        os._exit(code)


def _count_steps(kill_at: int, executor: int) -> None:
    """A worker assembles, the coordinator ends the job: each is counted, one behind the other."""
    counted = Path(os.environ["STEPS_FILE"])
    is_on = False

    def changing(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if is_on:
                done = int(counted.read_text() or 0)
                counted.write_text(str(done + 1))
                if done == kill_at:
                    if name == "copy_file_range":  # in the middle of it
                        real(args[0], args[1], max(1, args[2] // 2), *args[3:])
                    os.kill(executor, signal.SIGKILL)
                    os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return wrapped

    @contextlib.contextmanager
    def counting() -> Iterator[None]:
        nonlocal is_on
        is_on = True
        try:
            yield
        finally:
            is_on = False

    for name in _CHANGING:
        setattr(os, name, changing(getattr(os, name), name))
    for owner, name in ((work, "_assemble"), (Coordinator, "_end")):
        setattr(owner, name, counting()(getattr(owner, name)))


def moved_and_kept(job: RecipePlan) -> tuple[set[int], set[int]]:
    """Partitions whose part has no file of its own any more, and all that have a manifest."""
    made = {
        int(path.stem[-6:]) for path in Path(executors.folder_of(job).partitions).glob("partition_*.json")
    }
    own = {
        int(path.stem[-6:]) for path in Path(executors.folder_of(job).partitions).glob("partition_*.jsonl")
    }
    return made - own, made


def main(folder: Path, shard_bytes: int) -> None:
    data = executors.write_lines(folder / "rows.jsonl", executors.documents(400))
    messages = []
    for kill_at in range(200):
        place = folder / f"kill{kill_at}"
        place.mkdir()
        os.environ["STEPS_FILE"] = str(place / "steps")
        (place / "steps").touch()
        parts = {"mode": "manual", "num_of_partitions": 3}
        job = executors.plan(
            place, data, executors.WITH_GLOBAL, partition=parts, export_shard_size=shard_bytes
        )
        is_killed = forked(job.job_dir, kill_at) is None
        moved, made = moved_and_kept(job)
        seen = len(executors.events_of(job))
        code = forked(job.job_dir, None)
        ran = [
            [each.partition_id, each.operation_idx]
            for each in executors.events_of(job)[seen:]
            if each.event_type == "op_start"
        ]
        messages.append(
            {
                "is_killed": is_killed,
                "code": code,
                "moved": len(moved),
                "made": len(made),
                "ran": ran,
                "files": {path.name: executors.fingerprint(path) for path in sorted(place.glob("out*"))},
                "left": [path.name for path in place.glob(".out*")],
                "steps": int((place / "steps").read_text()),
            }
        )
        if not is_killed or not made:
            break
    sys.stdout.write(json.dumps(messages))


def once(job_dir: str, kill_at: int) -> None:
    os.environ["STEPS_FILE"] = os.path.join(job_dir, "steps")
    Path(os.environ["STEPS_FILE"]).write_text("")
    if forked(job_dir, kill_at) is not None:
        raise AssertionError("it was not killed")


if __name__ == "__main__":
    if sys.argv[1] == "once":
        once(sys.argv[2], int(sys.argv[3]))
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]))
