"""The newest state of a partition that can be trusted."""

import contextlib
import os
from collections.abc import Sequence

from msgspec import Struct

from joblens.data import checkpoints
from joblens.data.checkpoints import DeltaManifest, KeptFile, StageManifest
from joblens.data.job_folder import JobFolder
from joblens.data.partition_state import PartitionState
from joblens.data.rows import LINE
from joblens.data.whole_files import BEING_WRITTEN
from joblens.model.recipe import RecipePlan, Stage


class Restored(Struct, eq=False):
    """`after` is the last operator whose work the state has."""

    state: PartitionState
    after: int
    rejects: list[bytes]  # lines of the rejects file, for everything up to here
    loaded: DeltaManifest | None = None


def newest_in_stage(
    plan: RecipePlan,
    folder: JobFolder,
    partition_id: int,
    stage: Stage,
    found: Restored,
) -> Restored:
    """From the state at the beginning of the stage on, each delta is applied that fits on the one before and
    is the file that was written."""
    kept = folder.checkpoints_of(partition_id)
    for call in plan.recipe.process[stage.first : stage.end]:
        path = folder.checkpoint_manifest(partition_id, call.index, call.name)
        manifest = checkpoints.read_manifest(path, DeltaManifest)
        if manifest is None or not _apply(plan, kept, manifest, found):
            continue
        found.after = call.index
        found.loaded = manifest
    return found


def _apply(plan: RecipePlan, folder: str, manifest: DeltaManifest, found: Restored) -> bool:
    """False: it does not belong here, or not all of it is there. The state is as it was then."""
    state = found.state
    calls = plan.recipe.process[found.after + 1 : manifest.index + 1]
    if manifest.base != state.chain or manifest.source_rows != state.source_rows:
        return False
    if manifest.chain != checkpoints.next_chain(manifest.base, calls, manifest.file):
        return False
    buffer = checkpoints.load_kept(folder, manifest.file)
    rejects = read_rejects(folder, manifest.rejects.file)
    if buffer is None or rejects is None:
        return False
    checkpoints.apply_delta(state, buffer)
    names = [name for name in manifest.columns if name != LINE or state.lines is None]
    state.batch = state.batch.select(names)
    assert state.count == manifest.rows
    state.saved(manifest.chain)
    found.rejects += rejects
    return True


def read_rejects(folder: str, file: KeptFile | None) -> list[bytes] | None:
    """None: the file is not what it was."""
    if file is None:
        return []
    buffer = checkpoints.load_kept(folder, file)
    return None if buffer is None else bytes(buffer).splitlines(keepends=True)


def stage_end(folder: JobFolder, partition_id: int, stage: Stage) -> StageManifest | None:
    return checkpoints.read_manifest(folder.stage_manifest(partition_id, stage.index), StageManifest)


def is_stage_whole(folder: JobFolder, manifest: StageManifest, signatures_dir: str) -> bool:
    """Everything that the stages behind need is there as it was written."""
    kept = folder.checkpoints_of(manifest.partition_id)
    files: Sequence[tuple[str, KeptFile | None]] = (
        (kept, manifest.whole),
        (signatures_dir, manifest.signatures),
        (kept, manifest.rejects.file),
    )
    return all(file is None or checkpoints.load_kept(where, file) is not None for where, file in files)


def remove_leftovers(folder: str) -> None:
    """What a killed worker was just writing."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in names:
        if name.endswith((BEING_WRITTEN, ".partial")):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))


def remove_all_leftovers(folder: JobFolder) -> None:
    """By whoever holds the job's lock, while no worker is at it. Those of a partition's checkpoints go when
    somebody works on it again."""
    folders = [folder.path, folder.metadata, folder.logs, folder.rejects, folder.trace, folder.partitions]
    with contextlib.suppress(FileNotFoundError):
        folders += [entry.path for entry in os.scandir(folder.partitions) if entry.is_dir()]
    for each in folders:
        remove_leftovers(each)
