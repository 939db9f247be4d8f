"""Warnings of disks that may be too small for a recipe's job."""

from msgspec.structs import replace

from joblens.app.recipes.paths import Disk, Free, disk_warnings
from joblens.model.recipes.recipe import Stage
from joblens.model.values.units import MIB
from tests.golden.test_recipe_text import PLAN

KINDS = ("mapper", "filter", "deduplicator")  # needs the data four times: 800 MiB, 600 of them checkpoints


def disks(**free_mib: int) -> Free:
    """Folders lie on the disk that their first part names; all others on one disk."""

    def free(folder: str) -> Disk:
        name = next((name for name in free_mib if folder.startswith(f"/{name}")), "data")
        return Disk(hash(name), f"/{name}", free_mib[name] * MIB)

    return free


def test_enough_room_is_no_reason_to_warn() -> None:
    assert disk_warnings(PLAN, KINDS, disks(data=800)) == []


def test_too_little_room_is_said_with_both_numbers() -> None:
    (warning,) = disk_warnings(PLAN, KINDS, disks(data=799))
    assert warning.startswith(
        "disk: the job may need 800.0 MiB at /data, where 799.0 MiB are free; free space"
    )


def test_each_disk_has_to_have_room_for_its_part() -> None:
    recipe = replace(PLAN.recipe, checkpoint_dir="/fast/kept", export_path="/far/out.jsonl")
    plan = replace(PLAN, recipe=recipe)
    assert disk_warnings(plan, KINDS, disks(data=200, fast=600, far=200)) == []
    result = disk_warnings(plan, KINDS, disks(data=199, fast=599, far=199))
    assert [warning.split(",")[0].rpartition("need ")[2] for warning in result] == [
        "200.0 MiB at /far",
        "600.0 MiB at /fast",
        "200.0 MiB at /data",
    ]


def test_a_job_without_a_global_operator_needs_less() -> None:
    plan = replace(PLAN, stages=(Stage(index=0, first=0, end=3),), checkpoint_after=())
    assert disk_warnings(plan, ("mapper", "filter", "filter"), disks(data=200)) == []
