"""Two jobs compared: what differs, which numbers moved, where it may come from."""

from typing import Any

import pytest
from msgspec.structs import replace

from joblens.analysis.comparing.job_diff import compare_jobs
from joblens.analysis.comparing.job_differences import JobDiff, JobView, Noise
from joblens.model.jobs.details import CodeVersion, Hardware, Program, Provenance
from joblens.model.jobs.job import Artifact, FileStamp, Placement, Requirements, Status, Usage
from joblens.model.values.units import GIB, MIB
from joblens.views.runs.diff import render_job_diff
from joblens.views.text.style import PLAIN
from tests.builders.records import a_record, a_sample

PROVENANCE = Provenance(
    host="node7",
    hardware=Hardware(cpu_model="EPYC 9654"),
    code=CodeVersion(commit="1a2b3c4d5e6f7a8b", is_dirty=False, branch="main"),
    programs=(Program(path="/usr/bin/python", sha256="ab" * 32, version="3.11.7"),),
    versions={"python": "3.11.7", "numpy": "2.4.0"},
    environment={"OMP_NUM_THREADS": "8"},
)


def view(
    *, wall_s: float = 100.0, cpu_s: float = 90.0, memory: int = GIB, job: Any = None, **more: Any
) -> JobView:
    """A job of which everything is known."""
    usage = Usage(cpu_total_usec=round(cpu_s * 1e6), memory_peak_bytes=memory, **more.pop("usage", {}))
    attempt = more.pop("attempt", {})
    provenance, samples = more.pop("provenance", PROVENANCE), more.pop("samples", ())
    record = a_record(job=job, attempt=attempt, duration_s=wall_s, usage=usage, **more)
    return JobView(record=record, provenance=provenance, samples=tuple(samples))


def changes_of(found: JobDiff) -> list[tuple[str, str | None, str | None]]:
    return [(f"{one.group} {one.name}", one.before, one.after) for one in found.differences]


def verdicts(found: JobDiff) -> dict[str, str]:
    return {one.key: one.verdict for one in found.numbers}


def causes(found: JobDiff) -> list[tuple[str, str]]:
    return [(cause.kind, cause.text) for cause in found.causes]


def test_jobs_that_are_the_same_have_no_differences_and_no_causes() -> None:
    found = compare_jobs(view(), view(), {})
    assert (found.differences, found.causes) == ((), ())
    assert "code" in found.same
    assert set(verdicts(found).values()) == {"same"}


def test_single_words_of_a_command_are_named_by_their_option() -> None:
    found = compare_jobs(view(), view(job={"argv": ("python", "poisson.py", "--mesh", "128")}), {})
    assert changes_of(found) == [("command --mesh", "64", "128")]


def test_a_command_of_another_length_is_reported_as_a_whole() -> None:
    found = compare_jobs(view(), view(job={"argv": ("python", "other file.py")}), {})
    assert changes_of(found) == [("command line", "python poisson.py --mesh 64", "python 'other file.py'")]


def test_a_line_for_the_shell_is_reported_as_it_was_typed() -> None:
    typed = view(job={"argv": ("seq 9 | sort > out.txt",), "is_shell": True})
    found = compare_jobs(view(), typed, {})
    assert changes_of(found) == [("command line", "python poisson.py --mesh 64", "seq 9 | sort > out.txt")]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"code": CodeVersion(commit="9" * 40, is_dirty=True)}, "code commit"),
        ({"versions": {"python": "3.12.1", "numpy": "2.4.0"}}, "versions python"),
        ({"environment": {"OMP_NUM_THREADS": "1"}}, "environment OMP_NUM_THREADS"),
        ({"hardware": Hardware(cpu_model="Xeon")}, "machine processor"),
        ({"programs": (Program(path="/usr/bin/python", sha256="cd" * 32),)}, "programs /usr/bin/python"),
        ({"host": "node8"}, "machine host"),
    ],
)
def test_what_a_job_ran_in_is_compared(changes: dict[str, Any], expected: str) -> None:
    found = compare_jobs(view(), view(provenance=replace(PROVENANCE, **changes)), {})
    assert expected in [name for name, _, _ in changes_of(found)]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"params": {"mesh_size": 128}}, ("parameters mesh_size", "64", "128")),
        ({"seeds": {"seed": "7"}}, ("seeds seed", None, "7")),
        (
            {"requirements": Requirements(memory_bytes=2 * GIB)},
            ("requirements memory", None, "2.0 GiB"),
        ),
        ({"inputs": (FileStamp("a", 8, 1, "ff"),)}, ("inputs a", None, "8 B ff")),
    ],
)
def test_what_was_asked_for_is_compared(job: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert expected in changes_of(compare_jobs(view(), view(job=job), {}))


def test_a_file_with_another_time_and_the_same_content_is_the_same() -> None:
    one, other = ({"inputs": (FileStamp("a", 8, time, "ff"),)} for time in (1, 2))
    found = compare_jobs(view(job=one), view(job=other), {})
    assert "inputs" in found.same


def test_outputs_are_compared_by_content() -> None:
    one, other = (view(artifacts=(Artifact("out", 3, digest * 64),)) for digest in "ab")
    assert "outputs" in compare_jobs(one, one, {}).same
    assert [name for name, _, _ in changes_of(compare_jobs(one, other, {}))] == ["outputs out"]


def test_what_one_side_has_no_record_of_is_said_to_be_unknown() -> None:
    found = compare_jobs(view(), view(provenance=None), {})
    assert {"code", "programs", "versions"} <= set(found.unknown)
    assert not any(one.group == "code" for one in found.differences)


def test_without_earlier_runs_a_tenth_counts() -> None:
    found = compare_jobs(view(), view(wall_s=109.0, cpu_s=104.0, memory=GIB + 200 * MIB), {})
    assert verdicts(found) == {
        "duration_s": "same",
        "waited_s": "same",
        "cpu_s": "up",
        "memory_peak_bytes": "up",
    }


def test_with_earlier_runs_their_spread_counts() -> None:
    steady, wild = Noise(0.001, 12), Noise(0.2, 12)
    before, after = view(), view(wall_s=103.0, cpu_s=120.0)
    found = compare_jobs(before, after, {"duration_s": steady, "cpu_s": wild})
    numbers = {one.key: one for one in found.numbers}
    assert (numbers["duration_s"].verdict, numbers["cpu_s"].verdict) == ("up", "same")
    assert numbers["duration_s"].earlier_runs == 12


def test_a_number_that_one_side_lacks_is_unknown() -> None:
    found = compare_jobs(view(usage={"network_rx_bytes": 5}), view(), {})
    assert verdicts(found)["network_rx_bytes"] == "unknown"


def test_time_spent_waiting_is_distinguished_from_computing() -> None:
    before, after = (
        view(usage={"cpu_throttled_usec": 0}),
        view(wall_s=160, usage={"cpu_throttled_usec": 55_000_000}),
    )
    text = causes(compare_jobs(before, after, {}))
    assert ("measured", "CPU time is unchanged: it waited more") in text
    assert ("measured", "55.0s more throttled by its CPU limit") in text


def test_more_instructions_are_more_work_and_the_same_number_is_a_slower_machine() -> None:
    before = view(usage={"instructions": 10**12})
    more = compare_jobs(before, view(wall_s=200, cpu_s=180, usage={"instructions": 2 * 10**12}), {})
    slower = compare_jobs(before, view(wall_s=200, cpu_s=180, usage={"instructions": 10**12}), {})
    assert causes(more)[0][1].startswith("it executed more instructions")
    assert causes(slower)[0][1].startswith("the same number of instructions ran slower")


def test_a_parameter_whose_square_the_time_follows_fits() -> None:
    before = view(job={"params": {"mesh": 64}})
    after = view(wall_s=395, cpu_s=362, job={"params": {"mesh": 128}})
    fits = [text for kind, text in causes(compare_jobs(before, after, {})) if kind == "fits"]
    assert fits == ["parameters: mesh 64 → 128; with about its square: wall time x4, CPU time x4"]


def test_inputs_that_grew_by_as_much_fit_and_are_not_reported_twice() -> None:
    before = view(job={"inputs": (FileStamp("a", 100 * MIB, 1, "aa"),)})
    after = view(memory=3 * GIB, job={"inputs": (FileStamp("a", 310 * MIB, 2, "bb"),)})
    text = causes(compare_jobs(before, after, {}))
    assert text == [("fits", "inputs: 100.0 MiB → 310.0 MiB; in proportion: peak memory x3")]


def test_a_difference_that_explains_nothing_by_its_size_is_only_possible() -> None:
    code = replace(PROVENANCE, code=CodeVersion(commit="9" * 40, is_dirty=False, branch="main"))
    text = causes(compare_jobs(view(), view(memory=2 * GIB, provenance=code), {}))
    assert text == [("possible", "the code differs (commit): may explain peak memory x2")]


def test_a_change_without_any_difference_is_said_to_have_no_recorded_reason() -> None:
    [(kind, text)] = causes(compare_jobs(view(), view(memory=2 * GIB), {}))
    assert kind == "possible"
    assert text.startswith("no recorded difference explains it")


def test_a_machine_that_was_busier_is_reported() -> None:
    def samples(busy: int) -> list[Any]:
        return [
            a_sample(second, host_cpu_busy_usec=second * busy, host_cpu_total_usec=second * 100)
            for second in (0, 10)
        ]

    found = compare_jobs(view(samples=samples(20)), view(wall_s=150, samples=samples(95)), {})
    assert any(text.startswith("the machine was busier: 20% → 95%") for _, text in causes(found))


def test_time_without_computing_comes_from_samples() -> None:
    idle = [a_sample(second, cpu_total_usec=min(second, 5) * 1_000_000) for second in range(21)]
    busy = [a_sample(second, cpu_total_usec=second * 1_000_000) for second in range(21)]
    found = compare_jobs(view(samples=busy), view(wall_s=115, samples=idle), {})
    numbers = {one.key: (one.before, one.after) for one in found.numbers}
    assert numbers["idle_s"] == (0.0, 15.0)
    assert ("measured", "15.0s more idle") in causes(found)


def test_another_ending_is_reported_before_everything_else() -> None:
    after = view(wall_s=3, cpu_s=2, status=Status.FAILED, exit_code=1)
    kind, text = causes(compare_jobs(view(), after, {}))[0]
    assert kind == "measured"
    assert "failed after 3.0s): the numbers cover only the time until then" in text


def test_a_job_that_has_not_begun_can_be_compared() -> None:
    record = replace(view().record, attempt=None, outcome=None, status=Status.QUEUED)
    found = compare_jobs(view(), JobView(record=record), {})
    assert "machine" in found.unknown
    assert all(one.verdict == "unknown" for one in found.numbers)


def test_what_only_one_side_was_looked_at_for_is_not_known() -> None:
    looked = replace(PROVENANCE, limits={"stack": "8388608"}, system="Debian 12")
    found = compare_jobs(view(provenance=None), view(provenance=looked), {})
    assert changes_of(found) == []
    assert {"code", "programs", "versions", "limits", "processor"} <= set(found.unknown)


def test_variables_of_a_session_differ_only_where_they_were_given() -> None:
    before, after = {"PWD": "/", "SLURM_X": "1"}, {"PWD": "/tmp", "SLURM_X": "2"}
    given = ("SLURM_X",)
    found = compare_jobs(
        view(job={"env": before, "env_given": given}), view(job={"env": after, "env_given": given}), {}
    )
    assert changes_of(found) == [("environment SLURM_X", "1", "2")]


def test_names_that_every_run_on_a_cluster_makes_again_are_no_difference() -> None:
    def placed(number: str, node: str) -> JobView:
        return view(
            job={"queue": f"@slurm.{number * 8}~"},
            attempt={"placement": Placement(engine="slurm", job_id=number, nodes=(node,))},
            worker=f"slurm-{number}-ab",
        )

    assert changes_of(compare_jobs(placed("1", "n1"), placed("2", "n2"), {})) == [
        ("placement nodes", "n1", "n2")
    ]


def test_queues_and_workers_that_people_named_are() -> None:
    found = compare_jobs(view(job={"queue": "a"}, worker="w1"), view(job={"queue": "b"}, worker="w2"), {})
    assert changes_of(found) == [("placement queue", "a", "b"), ("placement worker", "w1", "w2")]


def shown(found: JobDiff) -> str:
    return "\n".join(render_job_diff(found, width=None, paint=PLAIN, shows_all=True))


def test_a_change_that_is_too_small_to_tell_has_no_percentage() -> None:
    text = shown(compare_jobs(view(wall_s=0.12, memory=6 * MIB), view(wall_s=0.034, memory=3 * MIB), {}))
    large = shown(compare_jobs(view(wall_s=12.0, memory=600 * MIB), view(wall_s=3.4, memory=300 * MIB), {}))
    for percentage in ("-72%", "-50%"):
        assert percentage in large
        assert percentage not in text
    assert "No number changed by 10% or more." in text
    assert "≈ less than 0.1s or 8 MiB apart" in text


def test_every_change_of_a_tenth_is_marked_and_no_other() -> None:
    text = shown(compare_jobs(view(wall_s=100, cpu_s=100), view(wall_s=45, cpu_s=109), {}))
    (wall,) = [line for line in text.splitlines() if line.startswith("wall time")]
    (cpu,) = [line for line in text.splitlines() if line.startswith("CPU time")]
    assert wall.split()[-2:] == ["-55%", "▼"]
    assert cpu.split()[-1] == "+9%"
    assert "▲▼ 10% or more" in text
    assert "No number changed" not in text


def test_a_drop_is_marked_when_it_is_more_than_what_is_shown_as_usual() -> None:
    wide = {"duration_s": Noise(0.2, 9)}
    for wall_s in (70, 60, 45, 40):
        found = compare_jobs(view(wall_s=100), view(wall_s=wall_s), wide)
        (number,) = [one for one in found.numbers if one.key == "duration_s"]
        assert number.percent is not None
        assert number.usual_percent is not None
        assert number.has_moved is (-number.percent > number.usual_percent)
