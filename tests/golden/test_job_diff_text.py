"""Two jobs side by side, pinned."""

from typing import Any

from msgspec.structs import replace

from joblens.analysis.comparing.job_diff import compare_jobs
from joblens.analysis.comparing.job_differences import JobDiff, JobView, Noise
from joblens.model.jobs.details import CodeVersion, Hardware, Program, Provenance
from joblens.model.jobs.job import FileStamp, Requirements, Status, Usage
from joblens.model.values.units import GIB, MIB
from joblens.views.runs.diff import render_job_diff
from joblens.views.text.style import PLAIN, visible_width
from tests.builders.records import a_record
from tests.golden.golden import same_as_golden

BEFORE = Provenance(
    host="node7",
    system="Debian GNU/Linux 12",
    hardware=Hardware(cpu_model="AMD EPYC 9654", cpus=16),
    code=CodeVersion(commit="1a2b3c4d5e6f7a8b9c0d", is_dirty=False, branch="main"),
    programs=(Program(path="/usr/bin/python3", sha256="ab" * 32, version="3.11.7"),),
    versions={"numpy": "2.4.0", "python": "3.11.7", "scipy": "1.17.1"},
    environment={"OMP_NUM_THREADS": "8", "LANG": "C.UTF-8"},
)
AFTER = replace(
    BEFORE,
    code=CodeVersion(
        commit="77e0f1a2b3c4d5e6f7a8", is_dirty=True, branch="faster", changes_digest="c0ffee00c0ffee"
    ),
    versions={"numpy": "2.4.1", "python": "3.11.7", "scipy": "1.17.1"},
)


def job(
    number: int, wall_s: float, cpu_s: float, memory: int, provenance: Provenance, **more: Any
) -> JobView:
    usage = Usage(
        cpu_total_usec=round(cpu_s * 1e6),
        memory_peak_bytes=memory,
        io_read_bytes=more.pop("read", 40 * MIB),
        io_pressure_usec=more.pop("io_waited_s", 1) * 1_000_000,
    )
    record = a_record(job=more.pop("job", {}), duration_s=wall_s, usage=usage, **more)
    return JobView(record=replace(record, number=number), provenance=provenance)


def changed() -> JobDiff:
    before = job(
        12, 330, 297, 2 * GIB, BEFORE, job={"inputs": (FileStamp("mesh.h5", 200 * MIB, 1, "aa" * 32),)}
    )
    after = job(
        15,
        700,
        610,
        4 * GIB,
        AFTER,
        read=90 * MIB,
        job={
            "inputs": (FileStamp("mesh.h5", 410 * MIB, 2, "bb" * 32),),
            "requirements": Requirements(memory_bytes=8 * GIB),
        },
    )
    noise = {"duration_s": Noise(0.01, 9), "cpu_s": Noise(0.008, 9), "memory_peak_bytes": Noise(0.001, 9)}
    return compare_jobs(before, after, noise)


def test_a_job_after_a_change_of_everything() -> None:
    same_as_golden("job-diff", render_job_diff(changed(), width=100, paint=PLAIN, shows_all=False))


def test_a_job_that_waited_for_the_disk_and_failed() -> None:
    after = job(13, 420, 300, 2 * GIB, BEFORE, io_waited_s=85, status=Status.FAILED, exit_code=1)
    found = compare_jobs(job(12, 330, 297, 2 * GIB, BEFORE), after, {})
    same_as_golden("job-diff-waited", render_job_diff(found, width=80, paint=PLAIN, shows_all=True))


def test_nothing_is_wider_than_the_terminal() -> None:
    for width in (60, 72, 80):
        lines = render_job_diff(changed(), width=width, paint=PLAIN, shows_all=True)
        assert max(map(visible_width, lines)) <= width
