"""Reports: size of one about 10,000 jobs, how long a browser takes to show it, memory while it is written.

The jobs are copies of a real record, each with its own numbers and a minute of samples."""

import json
import os
import random
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from bench.commands import JOBLENS, Workbench
from bench.goals import Figure
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Finding, Record, Severity, Status
from joblens.model.values.ids import new_uuid
from joblens.model.writes import JobEnded, JobQueued, JobStarted, SamplesTaken
from joblens.stores.sqlite import SqliteStore
from tests.unit.stores.sample_series import busy_series

JOBS = int(os.environ.get("JOBLENS_BENCH_REPORT_JOBS", "10_000"))
SAMPLES = 60
BEGAN_US = 1_763_000_000_000_000
OPENED = 5


def figures(bench: Workbench) -> Iterator[Figure]:
    path, report = bench.path("reported.db"), bench.path("report.html")
    env = {**bench.env, "JOBLENS_STORE": path}
    subprocess.run([*JOBLENS, "run", "--", "sleep", "0.2"], env=env, check=True)
    _fill(path)
    began = time.perf_counter()
    command = [*JOBLENS, "report", "--tag", "bench", "-o", report, "--json"]
    written = json.loads(subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE).stdout)
    took_s = time.perf_counter() - began
    memory_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
    note = f"{written['jobs']:,} jobs of {SAMPLES} samples, written in {took_s:.0f} s"
    yield Figure(f"report of {JOBS:,} jobs", os.path.getsize(report) / 1e6, "MB", 20, note=note)
    yield Figure("memory while it is written", memory_mb, "MB", 300)
    yield from _opened(report)


def _fill(path: str) -> None:
    store = SqliteStore(path)
    (real,) = store.records(HistoryQuery())
    chance = random.Random(7)
    for first in range(0, JOBS, 100):
        for number in range(first, min(JOBS, first + 100)):
            _add(store, real, number, chance)
    store.close()


def _add(store: SqliteStore, real: Record, number: int, chance: random.Random) -> None:
    assert real.attempt is not None
    assert real.outcome is not None
    uuid, start_us = new_uuid(), BEGAN_US + number * 30_000_000
    status = Status.FAILED if chance.random() < 0.1 else Status.SUCCESS
    used = real.outcome.usage
    usage = replace(
        used,
        cpu_total_usec=chance.randint(10**6, 10**9),
        cpu_user_usec=chance.randint(10**6, 10**9),
        memory_peak_bytes=chance.randint(10**7, 10**10),
        io_read_bytes=chance.randint(0, 10**10),
        io_write_bytes=chance.randint(0, 10**10),
    )
    finding = Finding(
        code="exit-code", severity=Severity.PROBLEM, text=f"exit code {number % 7 + 1}", advice="read stderr"
    )
    outcome = replace(
        real.outcome,
        status=status,
        ended_at_us=start_us + SAMPLES * 1_000_000,
        duration_s=SAMPLES + chance.random(),
        usage=usage,
        samples=SAMPLES,
        findings=(finding,) if status is Status.FAILED else (),
        exit_code=number % 7 + 1 if status is Status.FAILED else 0,
    )
    job = replace(
        real.job,
        uuid=uuid,
        name=f"train-{number % 500}",
        argv=(
            "python",
            "train.py",
            "--epochs",
            str(number % 90),
            "--learning-rate",
            f"{chance.random():.5f}",
        ),
        tags=("bench", f"team={number % 8}"),
        params={"epochs": number % 90, "fold": number % 5},
        created_at_us=start_us,
        run=None,
    )
    attempt = replace(real.attempt, started_at_us=start_us)
    shifted = [
        replace(sample, at_us=start_us + sample.elapsed_us) for sample in busy_series(SAMPLES, seed=number)
    ]
    store.apply([JobQueued(job), JobStarted(uuid, attempt), SamplesTaken(uuid, 0, tuple(shifted))])
    store.apply([JobEnded(uuid, outcome)])


def _opened(report: str) -> Iterator[Figure]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        return
    from playwright.sync_api import sync_playwright

    first, table, job = [], [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
        )
        for _ in range(OPENED):
            page = browser.new_page()
            began = time.perf_counter()
            page.goto(Path(report).as_uri(), wait_until="commit")
            page.get_by_role("heading", name="Longest jobs").wait_for()
            first.append(time.perf_counter() - began)
            began = time.perf_counter()
            page.get_by_role("link", name="Jobs", exact=True).click()
            page.locator(".page-head", has_text=f"{JOBS:,} jobs").wait_for()
            table.append(time.perf_counter() - began)
            began = time.perf_counter()
            page.locator("tbody a").first.click()
            page.locator("h1", has_text="train").wait_for()
            job.append(time.perf_counter() - began)
            page.close()
        browser.close()
    yield Figure("report opens", median(first), "s", 2)
    yield Figure("report: job table", median(table), "s", 1)
    yield Figure("report: page of a job", median(job), "s", 1)
