"""What lies on disk is believed only where it fits."""

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from joblens.data.base import manifests
from joblens.data.base.job_folder import JobFolder
from joblens.data.base.messages import Decide
from joblens.data.partition import checkpoints, restoring
from joblens.data.partition.checkpoints import DeltaManifest, MaskOfPart, MasksManifest, StageManifest
from joblens.data.partition.global_operator import decide
from joblens.data.partition.restoring import Restored
from joblens.data.partition.worker_context import WorkerContext
from joblens.data.rows.batch import rows_of
from joblens.data.rows.partition import PartitionState
from joblens.model.errors import JoblensError
from joblens.model.recipes.recipe import OperatorCall, RecipePlan, Stage
from tests.unit.data.recipe_plans import plan_for

CALLS = (
    OperatorCall(index=0, name="text_length_filter", params={}),
    OperatorCall(index=1, name="document_deduplicator", params={}),
)
STAGES = (Stage(index=0, first=0, end=1, closing=1), Stage(index=1, first=2, end=2))


@pytest.fixture
def plan(tmp_path: Path) -> RecipePlan:
    plan = plan_for(tmp_path / "out.jsonl")
    recipe = replace(plan.recipe, process=CALLS)
    plan = replace(plan, job_dir=str(tmp_path / "job"), recipe=recipe, stages=STAGES)
    JobFolder.of_plan(plan).make()
    return plan


def begun() -> PartitionState:
    batch = pa.RecordBatch.from_arrays([pa.array(["a", "b", "c"], pa.large_string())], names=["text"])
    return PartitionState(rows_of(batch), source_rows=3, chain="source")


def keep_delta(folder: JobFolder, reported_rows: int) -> None:
    """Of two of three rows."""
    state = begun()
    state.drop(np.array([True, False, True]))
    Path(folder.checkpoints_of(0)).mkdir()
    path = folder.checkpoint(0, 0, CALLS[0].name)
    file = checkpoints.keep_bytes(path, checkpoints.serialized(checkpoints.delta_of(state)))
    manifest = DeltaManifest(
        partition_id=0,
        index=0,
        base="source",
        chain=checkpoints.next_chain("source", CALLS[:1], file),
        source_rows=3,
        rows=reported_rows,
        columns=("text",),
        file=file,
    )
    manifests.write_manifest(folder.checkpoint_manifest(0, 0, CALLS[0].name), manifest)


def test_a_checkpoint_takes_its_partition_to_where_it_was(plan: RecipePlan) -> None:
    folder = JobFolder.of_plan(plan)
    keep_delta(folder, reported_rows=2)
    found = restoring.newest_in_stage(plan, folder, 0, STAGES[0], Restored(begun(), -1, []))
    assert (found.after, found.state.count) == (0, 2)


def test_a_checkpoint_that_gives_other_rows_than_it_tells_of_is_an_error(plan: RecipePlan) -> None:
    folder = JobFolder.of_plan(plan)
    keep_delta(folder, reported_rows=3)
    with pytest.raises(JoblensError, match="operator 0 has 2 rows, expected 3"):
        restoring.newest_in_stage(plan, folder, 0, STAGES[0], Restored(begun(), -1, []))


def keep_meeting(folder: JobFolder, keep: list[bool]) -> None:
    """Three rows that have come to the deduplicator, and what it decided."""
    whole = checkpoints.write_batches(folder.stage_whole(0, 0), checkpoints.whole_batches(begun()))
    end = StageManifest(
        partition_id=0,
        stage=0,
        origin="source",
        source_rows=3,
        rows=3,
        changed=(),
        whole=whole,
        signatures=whole,
    )
    manifests.write_manifest(folder.stage_manifest(0, 0), end)
    packed = np.packbits(np.array(keep)).tobytes()
    mask = MaskOfPart(
        partition_id=0,
        chain=end.chain,
        rows=len(keep),
        kept=sum(keep),
        offset=0,
        digest=manifests.digest_of(packed),
    )
    file = checkpoints.keep_bytes(folder.masks(1), packed)
    manifests.write_manifest(folder.masks_manifest(1), MasksManifest(index=1, file=file, parts=(mask,)))


def test_a_stage_begins_with_the_rows_that_a_global_operator_kept(plan: RecipePlan) -> None:
    folder = JobFolder.of_plan(plan)
    keep_meeting(folder, [False, True, True])
    met = restoring.met_before(plan, folder, 0, STAGES[1])
    assert met is not None
    assert met.all_rows().count == 3
    state = met.kept_rows()
    assert next(state.pieces()).batch.to_pylist() == [{"text": "b"}, {"text": "c"}]
    assert state.chain == restoring.mask_of(plan, folder, 0, STAGES[1]).next_chain


@pytest.mark.parametrize("gone", ["stage_000.json", "stage_000.arrow"])
def test_a_state_that_is_gone_is_none(plan: RecipePlan, gone: str) -> None:
    folder = JobFolder.of_plan(plan)
    keep_meeting(folder, [False, True, True])
    Path(folder.checkpoints_of(0), gone).unlink()
    assert restoring.met_before(plan, folder, 0, STAGES[1]) is None


def test_a_decision_that_is_gone_is_missed_by_name(plan: RecipePlan) -> None:
    folder = JobFolder.of_plan(plan)
    keep_meeting(folder, [False, True, True])
    Path(folder.masks_manifest(1)).unlink()
    with pytest.raises(JoblensError, match="the row mask of document_deduplicator is missing"):
        restoring.met_before(plan, folder, 0, STAGES[1])


def test_a_mask_that_is_not_what_was_decided_is_not_used(plan: RecipePlan) -> None:
    folder = JobFolder.of_plan(plan)
    keep_meeting(folder, [False, True, True])
    Path(folder.masks(1)).write_bytes(b"\xff")
    with pytest.raises(JoblensError, match="its row mask is damaged"):
        restoring.met_before(plan, folder, 0, STAGES[1])
    keep_meeting(folder, [False, True])
    with pytest.raises(JoblensError, match="belongs to other rows"):
        restoring.met_before(plan, folder, 0, STAGES[1])


def test_a_decision_about_other_rows_is_an_error_and_leaves_nothing(
    plan: RecipePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = JobFolder.of_plan(plan)
    keep_meeting(folder, [True, True, True])
    signatures = checkpoints.write_batch(folder.signatures(0, 1), next(begun().pieces()).batch)
    end = restoring.stage_end(folder, 0, STAGES[0])
    assert end is not None
    manifests.write_manifest(folder.stage_manifest(0, 0), replace(end, signatures=signatures))
    Path(folder.masks(1)).unlink()
    Path(folder.masks_manifest(1)).unlink()
    context = WorkerContext(plan)
    monkeypatch.setattr(context.operator(1), "decide", lambda *_parts, **_room: iter([np.ones(2, bool)]))
    with pytest.raises(JoblensError, match="a mask of 2 rows for partition 0, which has 3"):
        decide(context, Decide("decide", 0, (0,)), lambda _event: None)
    assert not list(Path(folder.partitions).glob("masks_*"))
