"""What must run again after something has changed."""

from msgspec import structs

from joblens.model.jobs.job import FileStamp
from joblens.model.runs.plan import Plan, PlannedDataset
from joblens.model.runs.workflow_spec import DatasetSpec, FileSpec, HashMode, UserDataSpec
from joblens.plan.workflows.selection import FilesNow, LastSuccess, command_digest, jobs_to_run_again
from tests.unit.plan.builders import job, planned, workflow

FILES = tuple(FileSpec(name=name, path=f"{name}.txt") for name in ("raw", "mid", "end"))
SPEC = workflow(
    job("one", "one ${files.input.raw} ${files.output.mid}"),
    job("two", "two ${files.input.mid} ${files.output.end}"),
    job("aside", "aside"),
    files=FILES,
)
PLAN = planned(SPEC)
DISK = {
    f"{name}.txt": FileStamp(f"{name}.txt", 3, 100, f"digest of {name}") for name in ("raw", "mid", "end")
}


def last(plan: Plan = PLAN) -> dict[int, LastSuccess]:
    return {
        place: LastSuccess(
            command_digest(plan, each), tuple(DISK[plan.files[one].path] for one in each.input_files)
        )
        for place, each in enumerate(plan.jobs)
    }


def again(plan: Plan, then: dict[int, LastSuccess], disk: dict[str, FileStamp]) -> dict[str, str]:
    def stamp_of(path: str) -> FileStamp:
        found = disk.get(path)
        return FileStamp(path) if found is None else structs.replace(found, digest=None)

    def digest_of(path: str) -> str | None:
        return disk[path].digest

    reasons = jobs_to_run_again(plan, then, FilesNow(stamp_of, digest_of))
    return {plan.jobs[place].name: reason for place, reason in reasons.items()}


def test_nothing_runs_again_when_nothing_has_changed() -> None:
    assert again(PLAN, last(), DISK) == {}


def test_a_touched_file_with_the_same_content_has_not_changed() -> None:
    touched = {**DISK, "raw.txt": structs.replace(DISK["raw.txt"], mtime_ns=200)}
    assert again(PLAN, last(), touched) == {}


def test_a_changed_input_runs_its_job_and_everything_behind_it() -> None:
    changed = {**DISK, "raw.txt": FileStamp("raw.txt", 3, 200, "other")}
    assert again(PLAN, last(), changed) == {
        "one": "input 'raw.txt' has changed",
        "two": "needs 'one', which runs again",
    }


def test_another_size_is_a_change_without_reading_the_file() -> None:
    changed = {**DISK, "mid.txt": FileStamp("mid.txt", 4, 200, "digest of mid")}
    assert again(PLAN, last(), changed) == {"two": "input 'mid.txt' has changed"}


def test_a_missing_output_is_made_again() -> None:
    disk = {path: stamp for path, stamp in DISK.items() if path != "end.txt"}
    assert again(PLAN, last(), disk) == {"two": "output 'end.txt' is missing"}


def test_a_changed_command_or_environment_runs_again() -> None:
    for changes in ({"command": "aside --more"}, {"env": {"X": "1"}}, {"invocation_script": "./x"}):
        plan = structs.replace(PLAN, jobs=(*PLAN.jobs[:2], structs.replace(PLAN.jobs[2], **changes)))
        assert again(plan, last(), DISK) == {"aside": "its command, script or environment has changed"}


def test_what_has_not_succeeded_yet_runs() -> None:
    then = last()
    del then[0]
    assert again(PLAN, then, DISK) == {
        "one": "has not succeeded yet",
        "two": "needs 'one', which runs again",
    }


def test_user_data_that_the_spec_gives_is_part_of_the_command() -> None:
    before, after = (
        planned(workflow(job("a", "x ${user_data.input.d}"), user_data=(UserDataSpec(name="d", data=data),)))
        for data in ({"seed": 1}, {"seed": 2})
    )
    assert command_digest(before, before.jobs[0]) != command_digest(after, after.jobs[0])


# ---- datasets ------------------------------------------------------------------------------------------


def dataset_plan(mode: HashMode) -> Plan:
    return planned(
        workflow(
            job("make", output_datasets=("parts",)),
            job("read", input_datasets=("parts",)),
            datasets=(DatasetSpec(name="parts", path="parts", hash_mode=mode),),
        )
    )


def again_with(
    plan: Plan, then: FileStamp | None, now: FileStamp, *, exists: bool = True
) -> tuple[dict[str, str], int]:
    """Which jobs run again and why, and how often the dataset was read for that."""
    digests = {place: command_digest(plan, each) for place, each in enumerate(plan.jobs)}
    success = {
        0: LastSuccess(digests[0]),
        1: LastSuccess(digests[1], () if then is None else (then,)),
    }
    read: list[str] = []

    def dataset_of(dataset: PlannedDataset) -> FileStamp:
        read.append(dataset.name)
        return now

    files = FilesNow(lambda path: FileStamp(path, None, 1 if exists else None), lambda _: None, dataset_of)
    reasons = jobs_to_run_again(plan, success, files)
    return {plan.jobs[place].name: why for place, why in reasons.items()}, len(read)


def dataset_stamp(digest: str | None, mode: HashMode = HashMode.MANIFEST) -> FileStamp:
    return FileStamp("parts", 10, digest=digest, files=2, hash_mode=mode.value)


def test_a_dataset_with_the_same_hash_runs_nothing_again() -> None:
    plan = dataset_plan(HashMode.MANIFEST)
    assert again_with(plan, dataset_stamp("a"), dataset_stamp("a")) == ({}, 1)
    changed = {"read": "dataset 'parts' has changed"}
    assert again_with(plan, dataset_stamp("a"), dataset_stamp("b")) == (changed, 1)


def test_a_dataset_without_a_hash_is_never_read_and_never_changed() -> None:
    plan = dataset_plan(HashMode.NONE)
    then = dataset_stamp(None, HashMode.NONE)
    assert again_with(plan, then, dataset_stamp("b")) == ({}, 0)
    gone = {"make": "dataset 'parts' is missing", "read": "needs 'make', which runs again"}
    assert again_with(plan, then, dataset_stamp(None), exists=False) == (gone, 0)


def test_what_needs_no_reading_is_found_out_first() -> None:
    plan = dataset_plan(HashMode.CONTENT)
    new = {"read": "dataset 'parts' is new"}
    assert again_with(plan, None, dataset_stamp("a")) == (new, 0)
    other = {"read": "the hash mode of dataset 'parts' has changed"}
    assert again_with(plan, dataset_stamp("a"), dataset_stamp("a")) == (other, 0)
    as_file = {"read": "dataset 'parts' is new"}
    assert again_with(plan, FileStamp("parts", 10, 5, "a"), dataset_stamp("a")) == (as_file, 0)
