"""What must run again after something has changed."""

from msgspec import structs

from joblens.model.plan import Plan
from joblens.model.run_link import FileStamp
from joblens.model.workflow_spec import FileSpec, UserDataSpec
from joblens.plan.changes import FilesNow, LastSuccess, command_digest, jobs_to_run_again
from tests.unit.plan.workflows import job, planned, workflow

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
