"""How much disk a job may take, from its plan."""

from msgspec.structs import replace

from joblens.plan.recipes.job_folder import disk_need
from tests.golden.test_recipe_text import KINDS, MIB, PLAN


def test_rows_that_wait_and_checkpoints_behind_mappers_count() -> None:
    need = disk_need(PLAN, KINDS)
    assert need.most_bytes == (1 + 2 + 1) * 200 * MIB
    assert "twice for rows waiting at document_deduplicator" in need.reason
    assert "once for checkpoints after mappers" in need.reason


def test_checkpoints_behind_filters_alone_take_next_to_nothing() -> None:
    plan = replace(PLAN, checkpoint_after=(0, 1))
    assert disk_need(plan, KINDS).most_bytes == disk_need(PLAN, KINDS).most_bytes


def test_a_recipe_without_global_operators_or_checkpoints_takes_its_export() -> None:
    plan = replace(PLAN, stages=PLAN.stages[1:], checkpoint_after=())
    assert disk_need(plan, KINDS).most_bytes == 200 * MIB
