"""The dashboard in Chromium: first view, filters over a million jobs, live numbers, long jobs, large runs.

`JOBLENS_BENCH_LIVE_S=600` watches live numbers for ten minutes. Sizes: `JOBLENS_BENCH_JOBS` of the store,
`JOBLENS_BENCH_LIVE_JOBS=1000,10000` of the overview, `JOBLENS_BENCH_RUN_JOBS` of the run."""

import json
import multiprocessing
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from bench import lists
from bench.commands import Workbench
from bench.goals import Figure
from bench.server import Server, serving
from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, RunLink, Status, Usage
from joblens.model.jobs.sample import Sample
from joblens.model.runs.run import Run, RunEnded, RunEvent, RunStarted, RunStatus, Workflow
from joblens.model.values.ids import new_uuid
from joblens.model.writes import (
    JobEnded,
    JobQueued,
    JobStarted,
    RunCreated,
    RunNoted,
    SamplesTaken,
    WorkflowCreated,
    Write,
)
from joblens.stores.sqlite import SqliteStore

LIVE_S = float(os.environ.get("JOBLENS_BENCH_LIVE_S", "45"))
# Running jobs on the overview, one number after the other; memory is watched with the first.
LIVE_JOBS = tuple(map(int, os.environ.get("JOBLENS_BENCH_LIVE_JOBS", "1000,10000").split(",")))
RUN_JOBS = int(os.environ.get("JOBLENS_BENCH_RUN_JOBS", "100_000"))
DAY_S = 86_400
VIEWS = 5
FILTERS = 12  # names that are typed, key by key
TRACED_S = 15.0
LONGEST_MS = 50.0
REST_S = 60.0  # then every curve has all its points
BATCH = 2000
_TRACED = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]
_VIEWPORT: Any = {"width": 1280, "height": 900}
_sessions: dict[int, Any] = {}  # by the server's pid
_TALL: Any = {"width": 1280, "height": 4000}  # every chart is in view

_TOTALS_SHOWN = """() =>
    [...document.querySelectorAll(".tile-value")].filter((n) => n.textContent !== "-").length >= 4
    && document.querySelectorAll("tbody tr, .table-empty:not([hidden])").length > 0"""
_ROWS_SHOWN = "() => document.querySelectorAll('.table tbody tr[data-key]').length > 0"
_CHARTS_SHOWN = """() => {
    const charts = [...document.querySelectorAll(".chart:not(.chart-absent)")];
    return charts.length >= 4 && charts.every((chart) => chart.querySelector("canvas"));
}"""
# Resolves to the time from the next key to the first frame in which all rows match.
_TYPED = """(text) => { window.typed = new Promise((resolve) => {
    addEventListener("keydown", () => {
        const began = performance.now();
        const look = () => {
            const names = [...document.querySelectorAll(".jobs-table tr[data-key] [data-column=name]")];
            const isEmpty = !document.querySelector(".jobs-table .table-empty").hidden;
            const isDone = isEmpty || (names.length && names.every((n) => n.textContent.includes(text)));
            const passed = performance.now() - began;
            if (isDone || passed > 5000) resolve(passed);
            else requestAnimationFrame(look);
        };
        requestAnimationFrame(look);
    }, { once: true, capture: true });
}); }"""


def figures(bench: Workbench) -> Iterator[Figure]:
    with _chromium() as browser:
        with lists.sqlite_store(bench) as store, serving(bench, store.url) as server:
            yield from _first_view(browser, server)
            yield _keystrokes(browser, server)
        for jobs in LIVE_JOBS:
            yield from _live(browser, bench, jobs)
        yield _day(browser, bench)
        yield from _large_run(browser, bench)


@contextmanager
def _chromium() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path is not None, "Chromium is not installed"
    arguments = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def _signed_in(browser: Browser, server: Server, viewport: Any = _VIEWPORT) -> Iterator[Page]:
    """A page with an empty cache. The URL to sign in works once, so the session is taken along."""
    context = browser.new_context(viewport=viewport, storage_state=_sessions.get(server.pid))
    try:
        if server.pid not in _sessions:
            context.request.get(server.sign_in_url)
            _sessions[server.pid] = context.storage_state()
        yield context.new_page()
    finally:
        context.close()


def _opened_s(page: Page, url: str, is_shown: str) -> float:
    began = time.perf_counter()
    page.goto(url, wait_until="commit")
    page.wait_for_function(is_shown, timeout=60_000, polling=10)
    return time.perf_counter() - began


def _opening(
    what: str, browser: Browser, server: Server, path: str, is_shown: str, goal_s: float, viewport: Any
) -> Figure:
    taken_s, cpu_s = [], server.cpu_s()
    for _ in range(VIEWS):
        with _signed_in(browser, server, viewport) as page:
            taken_s.append(_opened_s(page, server.url + path, is_shown))
    cpu_s = (server.cpu_s() - cpu_s) / VIEWS
    note = f"slowest {max(taken_s):.2f} s, {cpu_s:.2f} s of the server's CPU time each"
    return Figure(what, median(taken_s), "s", goal_s, note=note)


# ---- a million jobs


def _first_view(browser: Browser, server: Server) -> Iterator[Figure]:
    taken_s, sizes, requests = [], [], []
    for _ in range(VIEWS):
        with _signed_in(browser, server) as page:
            session = page.context.new_cdp_session(page)
            session.send("Network.enable")
            received: list[float] = []
            asked: list[str] = []
            session.on("Network.loadingFinished", _note(received, "encodedDataLength"))
            session.on("Network.requestWillBeSent", _note(asked, "documentURL"))
            taken_s.append(_opened_s(page, server.url, _TOTALS_SHOWN))
            page.wait_for_timeout(300)
            sizes.append(sum(received) / 1000)
            requests.append(len(asked))
    jobs = f"first view, cold, {lists.JOBS:,} stored jobs"
    yield Figure(f"{jobs}: content", median(taken_s), "s", 1.0, note=f"slowest {max(taken_s):.2f} s")
    yield Figure(f"{jobs}: transferred", max(sizes), "KB", 200)
    yield Figure(f"{jobs}: requests", max(requests), "", 5)


def _note(to: list[Any], field: str) -> Callable[[dict[str, Any]], None]:
    return lambda event: to.append(event[field])


def _keystrokes(browser: Browser, server: Server) -> Figure:
    """Types names of jobs digit by digit, in a new list each time."""
    chance, taken_ms = random.Random(5), []
    with _signed_in(browser, server) as page:
        _opened_s(page, f"{server.url}/jobs", _ROWS_SHOWN)
        search = page.locator("input.search")
        search.focus()
        for _ in range(FILTERS):
            text = ""
            for digit in str(chance.randint(1000, 19_999)):
                text += digit
                page.evaluate(_TYPED, text)
                page.keyboard.press(digit)
                taken_ms.append(page.evaluate("window.typed"))
                page.wait_for_timeout(chance.randint(150, 350))  # as people type; the count arrives meanwhile
            search.fill("")
            page.wait_for_timeout(400)
    ranked = sorted(taken_ms)
    p95 = ranked[-(-len(ranked) * 95 // 100) - 1]
    note = f"median {median(ranked):.0f} ms, slowest {ranked[-1]:.0f} ms, {len(ranked)} keys"
    return Figure(f"from key to rows over {lists.JOBS:,} jobs, p95", p95, "ms", 150, note=note)


# ---- live numbers


def _live(browser: Browser, bench: Workbench, jobs: int) -> Iterator[Figure]:
    path = bench.path(f"live-{jobs}.db")
    uuids = [new_uuid() for _ in range(jobs)]
    store = SqliteStore(path)
    store.apply(
        [write for place, uuid in enumerate(uuids) for write in _begun(uuid, f"train-{place}", _now_us())]
    )
    store.close()
    stop = multiprocessing.Event()
    writer = multiprocessing.Process(target=_write_live, args=(path, uuids, stop))
    with serving(bench, path) as server:
        writer.start()
        try:
            yield from _watched(browser, server, bench, jobs)
        finally:
            stop.set()
            writer.join(30)


def _watched(browser: Browser, server: Server, bench: Workbench, jobs: int) -> Iterator[Figure]:
    what = f"{jobs:,} running jobs, live at 1 s"
    with _signed_in(browser, server) as page:
        yield Figure(f"{what}: overview opens", _opened_s(page, server.url, _ROWS_SHOWN), "s", 1.0)
        page.wait_for_timeout(5000)
        rows = page.locator(".running-table tbody tr[data-key]").count()
        yield Figure(f"{what}: rows in the document", rows, "", 80)
        yield _longest_task(what, browser, page, bench, lambda: page.wait_for_timeout(TRACED_S * 1000))
        if jobs != LIVE_JOBS[0]:
            return
        page.wait_for_timeout(REST_S * 1000)
        before = _heap_mb(page)
        page.wait_for_timeout(LIVE_S * 1000)
        after = _heap_mb(page)
        growth = 100 * (after - before) / before
        note = f"{before:.1f} MB, {after:.1f} MB after {LIVE_S:.0f} s"
        yield Figure(f"{what}: growth of the page's memory", growth, "%", 5, note=note)


def _heap_mb(page: Page) -> float:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return float(metrics["JSHeapUsedSize"]) / 1e6


def _longest_task(
    what: str, browser: Browser, page: Page, bench: Workbench, act: Callable[[], None]
) -> Figure:
    """The longest task of the page's main thread in Chromium's trace."""
    path = bench.path("trace.json")
    browser.start_tracing(page=page, path=path, categories=_TRACED)
    act()
    browser.stop_tracing()
    events = json.loads(Path(path).read_text(encoding="utf-8"))["traceEvents"]
    os.unlink(path)
    pages = {
        (each["pid"], each["tid"])
        for each in events
        if each.get("name") == "thread_name" and each["args"].get("name") == "CrRendererMain"
    }
    drawn = {
        (each["pid"], each["tid"]) for each in events if each.get("name") == "FireAnimationFrame"
    }  # another tab's thread draws nothing
    mains = pages & drawn or pages
    tasks = [
        (each["dur"] / 1000, each.get("tdur", 0) / 1000)
        for each in events
        if (each.get("pid"), each.get("tid")) in mains
        and each.get("ph") == "X"
        and each.get("name") in ("RunTask", "ThreadControllerImpl::RunTask")
    ]
    longest = max((wall for wall, _ in tasks), default=0.0)
    computing = max((cpu for _, cpu in tasks), default=0.0)
    note = f"{len(tasks):,} tasks, at most {computing:.0f} ms of CPU time"
    return Figure(f"{what}: longest task", longest, "ms", LONGEST_MS, note=note)


def _write_live(path: str, uuids: list[str], stop: Any) -> None:
    """Gives every job a sample per second."""
    store, began = SqliteStore(path), time.monotonic()
    index = 0
    while not stop.is_set():
        store.apply(
            [
                SamplesTaken(uuid, index, (_sample(index, place, _now_us()),))
                for place, uuid in enumerate(uuids)
            ]
        )
        index += 1
        stop.wait(max(0.0, began + index - time.monotonic()))
    store.close()


# ---- a day of samples


def _day(browser: Browser, bench: Workbench) -> Figure:
    path, uuid = bench.path("dashboard-day.db"), new_uuid()
    began_us = _now_us() - DAY_S * 1_000_000
    store = SqliteStore(path)
    store.apply(_begun(uuid, "day", began_us))
    for first in range(0, DAY_S, 3600):
        hour = range(first, first + 3600)
        taken = tuple(_sample(second, 0, began_us + second * 1_000_000) for second in hour)
        store.apply([SamplesTaken(uuid, first, taken)])
    usage = Usage(cpu_total_usec=DAY_S * 900_000, memory_peak_bytes=1 << 30)
    store.apply([JobEnded(uuid, _outcome(DAY_S, usage, began_us))])
    store.close()
    with serving(bench, path) as server:
        what = f"job page with {DAY_S:,} samples, all charts"
        return _opening(what, browser, server, f"/jobs/{uuid}", _CHARTS_SHOWN, 1.0, _TALL)


# ---- a large run


def _large_run(browser: Browser, bench: Workbench) -> Iterator[Figure]:
    path, run = bench.path("large-run.db"), new_uuid()
    _fill_run(path, run)
    with serving(bench, path) as server:
        what = f"run with {RUN_JOBS:,} jobs opens"
        yield _opening(what, browser, server, f"/runs/{run}", _ROWS_SHOWN, 1.5, _VIEWPORT)
        with _signed_in(browser, server) as page:
            _opened_s(page, f"{server.url}/runs/{run}", _ROWS_SHOWN)
            page.wait_for_timeout(3000)
            yield _longest_task("its table scrolls", browser, page, bench, lambda: _scroll(page))


def _scroll(page: Page) -> None:
    box = page.locator(".table").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + min(box["height"], 300) / 2)
    for _ in range(60):
        page.mouse.wheel(0, 900)
        page.wait_for_timeout(30)


def _fill_run(path: str, run: str) -> None:
    """One stage of many jobs after one job, all of which have ended."""
    flow, now_us = new_uuid(), _now_us()
    text = (
        "name: large\njobs:\n  - name: prepare\n    command: 'true'\n"
        f"  - name: 'train_{{i}}'\n    command: 'echo {{i}}'\n    depends_on: [prepare]\n"
        f"    parameters:\n      i: '1:{RUN_JOBS - 1}'\n"
    )
    store = SqliteStore(path)
    store.apply(
        [
            WorkflowCreated(Workflow(uuid=flow, name="large", created_at_us=now_us)),
            RunCreated(
                Run(uuid=run, workflow_uuid=flow, created_at_us=now_us, spec_text=text, jobs=RUN_JOBS)
            ),
            RunNoted(RunEvent(new_uuid(), run, now_us, RunStarted(Owner("node1", 1, 1, "boot"), cpus=64.0))),
        ]
    )
    for first in range(0, RUN_JOBS, BATCH):
        writes: list[Write] = []
        for index in range(first, min(RUN_JOBS, first + BATCH)):
            uuid, at_us = new_uuid(), now_us + index * 10_000
            name = "prepare" if index == 0 else f"train_{index}"
            usage = Usage(cpu_total_usec=500_000, memory_peak_bytes=(1 << 20) * (1 + index % 700))
            writes += _begun(uuid, name, at_us, RunLink(run, index, 1))
            writes.append(JobEnded(uuid, _outcome(1.0, usage, at_us)))
        store.apply(writes)
    end = RunEvent(new_uuid(), run, now_us + RUN_JOBS * 10_000, RunEnded(RunStatus.COMPLETED))
    store.apply([RunNoted(end)])
    store.close()


def _begun(uuid: str, name: str, at_us: int, run: RunLink | None = None) -> list[Write]:
    job = Job(uuid=uuid, argv=("python", "train.py"), created_at_us=at_us, name=name, user="bench", run=run)
    attempt = Attempt(started_at_us=at_us, owner=Owner("elsewhere", 1, 1, "boot"), cpu_count=64)
    return [JobQueued(job), JobStarted(uuid, attempt)]


def _outcome(duration_s: float, usage: Usage, at_us: int) -> Outcome:
    end_us = at_us + round(duration_s * 1e6)
    return Outcome(status=Status.SUCCESS, ended_at_us=end_us, duration_s=duration_s, exit_code=0, usage=usage)


def _sample(index: int, place: int, at_us: int) -> Sample:
    """Curves that rise and fall, different for each job."""
    wave = (index * (7 + place % 5) + place * 31) % 97
    return Sample(
        at_us=at_us,
        elapsed_us=index * 1_000_000,
        cpu_total_usec=index * 600_000 + wave * 3000,
        cpu_user_usec=index * 500_000,
        cpu_system_usec=index * 100_000,
        memory_current_bytes=(1 << 30) + wave * (1 << 20),
        memory_anon_bytes=(1 << 29) + wave * (1 << 20),
        memory_file_bytes=1 << 28,
        memory_shmem_bytes=1 << 20,
        memory_kernel_bytes=1 << 21,
        io_read_bytes=index * 4096 + wave * 512,
        io_write_bytes=index * 8192,
        network_rx_bytes=index * 1500,
        network_tx_bytes=index * 900,
        processes=3 + wave % 4,
        threads=12 + wave % 9,
    )


def _now_us() -> int:
    return time.time_ns() // 1000
