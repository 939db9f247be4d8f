"""What Slurm itself says of jobs, with a real Slurm: seff, import, right-sizing of the past, the account
beside our own numbers."""

import time
from pathlib import Path

import msgspec
import pytest

from joblens.model.clusters.slurm import SlurmJob
from joblens.runners.slurm.commands import SlurmCommands
from tests.conftest import RunJoblens, wait_until
from tests.slurm_server import CLUSTER, SlurmServer

_MIB = 2**20
# Holds 60 MB, is busy for a while, and stays long enough to be seen by samples of a second.
_BUSY = """\
import time
held = b"1" * 60_000_000
end = time.process_time() + 0.5
while time.process_time() < end:
    pass
time.sleep(1.5)
"""
_LONG_S = 60.0


class Past(msgspec.Struct, frozen=True):
    """Ids of jobs that have ended."""

    wide: str  # two nodes, two tasks on each
    array: str  # three tasks
    steps: str  # one step after the other, then it failed

    @property
    def every(self) -> tuple[str, ...]:
        return self.wide, self.array, self.steps


@pytest.fixture(scope="module")
def past(shared_slurm: SlurmServer, tmp_path_factory: pytest.TempPathFactory) -> Past:
    """Done once for all tests of this file."""
    script = tmp_path_factory.mktemp("busy") / "busy.py"
    script.write_text(_BUSY)
    run = f"python3 {script}"
    wide = ("--nodes=2", "--ntasks-per-node=2", "--mem=400M")
    found = Past(
        wide=_submit(shared_slurm, "wide", *wide, line=f"srun {run}"),
        array=_submit(shared_slurm, "sweep", "--array=0-2", "--mem=1G", "--time=30", line=run),
        steps=_submit(shared_slurm, "steps", "--mem=40M", line=f"srun {run}; srun {run}; exit 3"),
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in shared_slurm.env().items():
            patch.setenv(name, value)
        commands = SlurmCommands()
        wait_until(
            lambda: _are_in_the_books(commands.sacct(found.every)),
            timeout=120.0,
            what="jobs to be in Slurm's books",
        )
    return found


def _are_in_the_books(jobs: list[SlurmJob]) -> bool:
    return len(jobs) == 5 and all(job.is_over and not job.row.asked_memory.endswith("?") for job in jobs)


def _submit(slurm: SlurmServer, name: str, *options: str, line: str) -> str:
    words = ("--parsable", f"--job-name={name}", "--output=/dev/null", *options, "--wrap", line)
    return slurm.ask("sbatch", *words).strip()


def test_memory_of_several_nodes_is_that_of_the_one_with_most(
    slurm: SlurmServer, past: Past, joblens: RunJoblens
) -> None:
    (result,) = joblens("seff", past.wide, "--json", code=0).json
    assert (result["state"], result["nodes"], result["cpus"], result["cluster"]) == (
        "COMPLETED",
        2,
        4,
        CLUSTER,
    )
    # Two tasks of 60 MB and their interpreters on each node; four together would be 240 MB at least.
    assert 110 * _MIB < result["memory_bytes"] < 220 * _MIB
    assert result["asked_memory_bytes_per_node"] == 400 * _MIB
    assert result["memory_is_estimated"]
    assert result["memory_is_lower_bound"]
    assert 1.9 < result["cpu_seconds"] < 8.0


def test_steps_one_after_the_other_are_not_counted_twice(
    slurm: SlurmServer, past: Past, joblens: RunJoblens
) -> None:
    (result,) = joblens("seff", past.steps, "--json", code=0).json
    assert (result["state"], result["exit_code"]) == ("FAILED", 3)
    assert 60_000_000 < result["memory_bytes"] < 110_000_000
    assert 0.9 < result["cpu_seconds"] < 4.0
    assert "--mem=" in result["sbatch"]  # it was over what it had asked for


def test_an_array_is_all_its_tasks_and_a_task_is_one_of_them(
    slurm: SlurmServer, past: Past, joblens: RunJoblens
) -> None:
    tasks = joblens("seff", past.array, "--json", code=0).json
    assert [task["job_id"] for task in tasks] == [f"{past.array}_{place}" for place in range(3)]
    text = joblens("seff", past.array, code=0).stdout
    assert all(f"{past.array}_{place}" in text for place in range(3))
    text = joblens("seff", f"{past.array}_1", code=0).stdout
    assert f"Array Job ID: {past.array}_1\n" in text
    assert " of 1.00 GB\n" in text


def test_the_lines_are_in_the_order_that_users_of_seff_know(
    slurm: SlurmServer, past: Past, joblens: RunJoblens
) -> None:
    lines = joblens("seff", past.wide, code=0).stdout.splitlines()
    names = [line.partition(":")[0] for line in lines[:11]]
    assert names == [
        *("Job ID", "Cluster", "User/Group", "State", "Nodes", "Cores per node", "CPU Utilized"),
        *("CPU Efficiency", "Job Wall-clock time", "Memory Utilized", "Memory Efficiency"),
    ]


def test_a_job_that_nobody_knows_is_bad_input(slurm: SlurmServer, joblens: RunJoblens) -> None:
    result = joblens("seff", "987654", code=2)
    assert "Slurm knows no job 987654" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("option", "name", "words"),
    [("--cluster", "nope", f"it knows {CLUSTER}"), ("--user", "nobody-of-that-name", "no such user")],
)
def test_a_past_of_someone_that_does_not_exist_is_bad_input(
    slurm: SlurmServer, joblens: RunJoblens, option: str, name: str, words: str
) -> None:
    result = joblens("import", "slurm", option, name, code=2)
    assert f"{option} {name}" in result.stderr
    assert words in result.stderr


def test_a_job_that_runs_is_reported_with_what_it_used_so_far(
    slurm: SlurmServer, joblens: RunJoblens
) -> None:
    held = "import time; held = b'1' * 60_000_000; time.sleep(120)"
    job_id = _submit(slurm, "running", "--mem=200M", line=f'exec python3 -c "{held}"')

    def seen() -> bool:
        (result,) = joblens("seff", job_id, "--json", code=0).json
        return result["state"] == "RUNNING" and (result["memory_bytes"] or 0) > 60_000_000

    try:
        wait_until(seen, timeout=_LONG_S, what="Slurm to see its memory")
        result = joblens("seff", job_id, code=0)
        assert "Running: numbers so far." in result.stdout
        assert "Next time" not in result.stdout
    finally:
        slurm.ask("scancel", job_id)


def test_the_past_of_a_cluster_is_imported_once_and_can_be_sized(
    slurm: SlurmServer, past: Past, joblens: RunJoblens
) -> None:
    first = joblens("import", "slurm", "--since", "1h", "--json", code=0).json
    assert first["jobs"] >= 5
    again = joblens("import", "slurm", "--since", "1h", "--json", code=0).json
    assert again["known"] >= first["jobs"]
    records = joblens("history", "--name", "sweep", "--json", code=0).json
    ids = {record["task_id"] for record in records}
    assert {f"slurm-{past.array}_{place}" for place in range(3)} <= ids
    sized = joblens("rightsize", "--jobs", "sweep", "--json", code=0).json
    advice = {part["resource"]: part for part in sized["groups"][0]["advice"]}
    assert advice["runtime"]["current_value"] == 1800
    assert 0 < advice["runtime"]["recommended_value"] < 120
    assert "--time=00:01:00" in sized["groups"][0]["sbatch"]


def test_a_job_of_the_past_that_was_over_its_memory_is_a_violation(
    slurm: SlurmServer, past: Past, joblens: RunJoblens
) -> None:
    joblens("import", "slurm", "--since", "1h", code=0)
    checked = joblens("check", "--jobs", "steps", "--include-failed", "--json", code=3).json
    memory = [one for one in checked["violations"] if one["resource_type"] == "Memory"]
    assert [one["specified_value"] for one in memory] == [40 * _MIB]
    assert memory[0]["peak_is_lower_bound"]
    within = joblens("check", "--jobs", "wide", "--all", code=0)
    assert "wide" in within.stdout


def test_text_of_sacct_says_the_same_as_sacct_itself(
    slurm: SlurmServer, past: Past, joblens: RunJoblens, tmp_path: Path
) -> None:
    asked = ("env", "SLURM_TIME_FORMAT=%s", "sacct", "-P", "-D", "--format=ALL", "-j", ",".join(past.every))
    file = tmp_path / "past.txt"
    file.write_text(slurm.ask(*asked))
    read = joblens("import", "slurm", file, "--json", code=0).json
    assert (read["jobs"], read["bad_lines"]) == (5, 0)
    again = joblens("import", "slurm", "--since", "1h", "--json", code=0).json
    assert again["known"] >= 5  # the same jobs have the same UUIDs


def test_our_own_numbers_and_those_of_slurm_stand_beside_each_other(
    slurm: SlurmServer, joblens: RunJoblens, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "busy.py").write_text(_BUSY)
    (tmp_path / "one.yaml").write_text(
        "name: one\n"
        "jobs:\n"
        "  - name: busy\n"
        "    command: python3 busy.py\n"
        "    resource_requirements: small\n"
        "resource_requirements:\n"
        "  - {name: small, num_cpus: 1, memory: 300m, runtime: PT5M}\n"
    )
    joblens("run", "one.yaml", "--engine", "slurm", "--packing", "jobs", timeout=120.0, code=0)

    def account() -> dict[str, object] | None:
        details = joblens("show", "busy", "--json", code=0).json["details"]
        found: dict[str, object] | None = details.get("cluster")
        return found if found and found.get("state") == "COMPLETED" else None

    result = wait_until(account, timeout=_LONG_S, what="Slurm's account of it") or {}
    assert "Slurm's accounting" in joblens("show", "busy", code=0).stdout
    (ours,) = joblens("seff", str(result["job_id"]), "--json", code=0).json
    assert (ours["memory_source"], ours["cpu_source"]) == ("joblens", "joblens")
    assert 60_000_000 < ours["memory_bytes"] < 110_000_000
    assert ours["slurm_cpu_seconds"] >= 0.5
    by_name = joblens("seff", "busy", "--json", code=0).json
    assert by_name[0]["job_uuid"] == ours["job_uuid"]
    joblens("import", "slurm", "--since", "1h", code=0)
    assert len(joblens("history", "--name", "busy", "--json", code=0).json) == 1  # not once more


def test_doctor_tells_which_slurm_it_is(slurm: SlurmServer, joblens: RunJoblens) -> None:
    rows = joblens("doctor", "--json").json
    rows = rows if isinstance(rows, list) else rows["capabilities"]
    result = {row["name"]: row for row in rows if row["area"] == "clusters"}
    assert result["slurm"]["available"]
    assert CLUSTER in result["slurm"]["mechanism"]
    assert "every 1s" in result["slurm accounting"]["mechanism"]


def test_without_a_cluster_the_way_out_is_reported(
    joblens: RunJoblens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = joblens("import", "slurm", code=2)
    assert "there is no sacct here" in result.stderr
    result = joblens("seff", "12", code=2)
    assert "there is no sacct here" in result.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("JobID        State\n", "does not begin with the names of sacct's columns"),
        ("JobID|State\n7|COMPLETED\n", "has no column for"),
    ],
)
def test_text_that_is_not_enough_is_refused_with_what_to_write(
    joblens: RunJoblens, tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "past.txt"
    file.write_text(text)
    result = joblens("import", "slurm", file, code=2)
    assert complaint in result.stderr
    assert "sacct -P" in result.stderr


def test_secrets_in_a_line_of_sbatch_are_not_kept(joblens: RunJoblens, tmp_path: Path) -> None:
    now = int(time.time())
    file = tmp_path / "past.txt"
    line = f"sbatch --export=API_TOKEN=hunter2hunter2 x.sh|{now}|{now}|10"
    file.write_text(f"JobID|JobName|State|SubmitLine|Submit|Start|ElapsedRaw\n7|x|COMPLETED|{line}\n")
    assert joblens("import", "slurm", file, "--json", code=0).json["jobs"] == 1
    assert "hunter2hunter2" not in joblens("show", "slurm-7", "--json", code=0).stdout
