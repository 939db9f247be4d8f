"""Restores the newest verified state of a partition."""

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from joblens.data.base import manifests
from joblens.data.base.job_folder import JobFolder
from joblens.data.files.shards import is_there
from joblens.data.partition import checkpoints
from joblens.data.partition.checkpoints import (
    DeltaManifest,
    FinishedPart,
    MaskOfPart,
    MasksManifest,
    StageManifest,
    VerifiedFile,
)
from joblens.data.rows.batch import LINE
from joblens.data.rows.partition import PartitionState
from joblens.files.atomic import PART
from joblens.model.errors import JoblensError
from joblens.model.recipes.recipe import RecipePlan, Stage


class Restored(Struct, eq=False):
    """`after`: the last operator included in the state."""

    state: PartitionState
    after: int
    rejects: list[bytes]  # lines of the rejects file so far
    loaded: DeltaManifest | None = None


def newest_in_stage(
    plan: RecipePlan,
    folder: JobFolder,
    partition_id: int,
    stage: Stage,
    found: Restored,
) -> Restored:
    """Applies the deltas of a stage in order, as long as each one fits the state before it and its file is
    unchanged."""
    checkpoint_dir = folder.checkpoints_of(partition_id)
    for call in plan.recipe.process[stage.first : stage.end]:
        path = folder.checkpoint_manifest(partition_id, call.index, call.name)
        manifest = manifests.read_manifest(path, DeltaManifest)
        if manifest is None or not _apply(plan, checkpoint_dir, manifest, found):
            continue
        found.after = call.index
        found.loaded = manifest
    return found


def _apply(plan: RecipePlan, folder: str, manifest: DeltaManifest, found: Restored) -> bool:
    """Returns False, with the state unchanged, if the delta does not fit or is incomplete."""
    state = found.state
    calls = plan.recipe.process[found.after + 1 : manifest.index + 1]
    if manifest.base != state.chain or manifest.source_rows != state.source_rows:
        return False
    if manifest.chain != checkpoints.next_chain(manifest.base, calls, manifest.file):
        return False
    buffer = checkpoints.load_verified(folder, manifest.file)
    rejects = read_rejects(folder, manifest.rejects.file)
    if buffer is None or rejects is None:
        return False
    checkpoints.apply_delta(state, buffer)
    names = [name for name in manifest.columns if name != LINE or state.lines is None]
    state.batch = state.batch.select(names)
    if state.count != manifest.rows:
        raise JoblensError(
            f"partition {manifest.partition_id}: its checkpoint after operator {manifest.index} has "
            f"{state.count:,} rows, expected {manifest.rows:,}"
        )
    state.saved(manifest.chain)
    found.rejects += rejects
    return True


def read_rejects(folder: str, file: VerifiedFile | None) -> list[bytes] | None:
    """Returns None if the file was changed."""
    if file is None:
        return []
    buffer = checkpoints.load_verified(folder, file)
    return None if buffer is None else bytes(buffer).splitlines(keepends=True)


def stage_end(folder: JobFolder, partition_id: int, stage: Stage) -> StageManifest | None:
    return manifests.read_manifest(folder.stage_manifest(partition_id, stage.index), StageManifest)


class Met(Struct, frozen=True, eq=False):
    """State of a partition before a global operator, with the operator's decision about its rows."""

    manifest: StageManifest
    mask: MaskOfPart
    keep: Any  # one bool per row
    rejects: list[bytes]
    whole: Any  # a mapped buffer

    def all_rows(self) -> PartitionState:
        return checkpoints.whole_state(self.whole, self.manifest, np.ones_like(self.keep))

    def kept_rows(self) -> PartitionState:
        state = checkpoints.whole_state(self.whole, self.manifest, self.keep)
        state.saved(self.mask.next_chain)
        return state


def met_before(plan: RecipePlan, folder: JobFolder, partition_id: int, stage: Stage) -> Met | None:
    """Returns the start of a stage after a global operator. None: it no longer exists."""
    manifest = stage_end(folder, partition_id, plan.stages[stage.index - 1])
    checkpoint_dir = folder.checkpoints_of(partition_id)
    whole = checkpoints.load_verified(checkpoint_dir, manifest.whole) if manifest else None
    rejects = read_rejects(checkpoint_dir, manifest.rejects.file) if manifest else None
    if manifest is None or whole is None or rejects is None:
        return None
    mask = mask_of(plan, folder, partition_id, stage)
    if mask.rows != manifest.rows:
        raise JoblensError(f"partition {partition_id}: its row mask belongs to other rows")
    return Met(manifest, mask, _bits(folder.masks(stage.first - 1), mask), rejects, whole)


def mask_of(plan: RecipePlan, folder: JobFolder, partition_id: int, stage: Stage) -> MaskOfPart:
    """Returns the decision of the global operator before this stage."""
    call = plan.recipe.process[stage.first - 1]
    found = find_mask(folder, call.index, partition_id)
    if found is None:
        raise JoblensError(f"partition {partition_id}: the row mask of {call.name} is missing")
    return found


def find_mask(folder: JobFolder, index: int, partition_id: int) -> MaskOfPart | None:
    manifest = manifests.read_manifest(folder.masks_manifest(index), MasksManifest)
    for part in manifest.parts if manifest else ():
        if part.partition_id == partition_id:
            return part
    return None


def _bits(path: str, mask: MaskOfPart) -> Any:
    with open(path, "rb") as file:
        packed = os.pread(file.fileno(), mask.size_bytes, mask.offset)
    if manifests.digest_of(packed) != mask.digest:
        raise JoblensError(f"partition {mask.partition_id}: its row mask is damaged")
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=mask.rows).astype(bool)


def is_stage_whole(plan: RecipePlan, folder: JobFolder, manifest: StageManifest) -> bool:
    """Returns whether everything that later stages need is intact. A partition that has advanced does not
    need the state itself."""
    closing = plan.stages[manifest.stage].closing
    assert closing is not None
    checkpoint_dir = folder.checkpoints_of(manifest.partition_id)
    files: Sequence[tuple[str, VerifiedFile | None]] = (
        (folder.signatures_dir(closing), manifest.signatures),
        (checkpoint_dir, manifest.rejects.file),
    )
    if any(file is not None and checkpoints.load_verified(where, file) is None for where, file in files):
        return False
    return checkpoints.load_verified(checkpoint_dir, manifest.whole) is not None or _is_further(
        plan, folder, manifest
    )


def _is_further(plan: RecipePlan, folder: JobFolder, manifest: StageManifest) -> bool:
    """Returns whether the decision was made for this state."""
    following = plan.stages[manifest.stage + 1]
    mask = find_mask(folder, following.first - 1, manifest.partition_id)
    if mask is None or mask.chain != manifest.chain:
        return False
    if following.closing is not None:
        end = stage_end(folder, manifest.partition_id, following)
        return end is not None and end.origin == mask.next_chain and is_stage_whole(plan, folder, end)
    path = folder.export_part_manifest(manifest.partition_id)
    part = manifests.read_manifest(path, FinishedPart)
    return part is not None and part.origin == mask.next_chain and is_there(part.part, folder.moved)


def forget_whole(folder: JobFolder, partition_id: int, stage: Stage) -> None:
    """Removes the state in which a partition waited for the others, once it has advanced."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder.stage_whole(partition_id, stage.index))


def remove_leftovers(folder: str) -> None:
    """Removes partial files of a killed worker."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in names:
        if name.endswith((PART, ".partial")):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))


def remove_all_leftovers(folder: JobFolder) -> None:
    """Removes all partial files; call it with the job's lock, without running workers. Partial
    checkpoints are removed when the partition is processed again."""
    folders = [folder.path, folder.metadata, folder.logs, folder.rejects, folder.trace, folder.partitions]
    with contextlib.suppress(FileNotFoundError):
        folders += [entry.path for entry in os.scandir(folder.partitions) if entry.is_dir()]
    for each in folders:
        remove_leftovers(each)
