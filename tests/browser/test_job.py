"""The page of one job: live and ended, its charts, output, processes and actions."""

import os
import re
import sys
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page, expect

from joblens.model.access import Role
from joblens.model.jobs.details import Details, ThreadTable, ThreadUse
from joblens.model.jobs.job import Finding, Requirements, Severity, Status
from joblens.model.writes import DetailsTaken, SamplesTaken
from joblens.web.pages import FIRST_CHARTS
from tests.browser.conftest import OpenPage, StartJob, Watched
from tests.browser.synthetic import HOSTILE, MIB, SHOWN, SyntheticJob
from tests.builders.gpu_job import DETAILS as GPU_DETAILS
from tests.builders.gpu_job import gpu_samples
from tests.builders.writes import SECOND
from tests.conftest import completed_joblens
from tests.integration.served import Served

_FAMILY = """
import subprocess, sys, time
print('\\x1b[32mstarted\\x1b[0m', flush=True)
child = subprocess.Popen(['sh', '-c', 'sleep 60; true'])
for step in range(600):
    print('step', step, flush=True)
    time.sleep(0.1)
"""


def state(page: Page) -> str:
    return page.locator(".job-head .state").inner_text()


def rows_of_numbers(page: Page, title: str) -> list[str]:
    """Times in the table below a chart."""
    chart = page.locator("figure.chart").filter(
        has=page.locator(".chart-title", has_text=re.compile(f"^{title}$"))
    )
    details = chart.locator("details.chart-table")
    if details.get_attribute("open") is None:
        details.locator("summary").click()
    expect(chart.locator("tbody th").first).to_be_visible()
    return chart.locator("tbody th").all_inner_texts()


def test_a_running_job_is_followed_to_its_cancellation(dashboard: Watched, start_job: StartJob) -> None:
    record = start_job(
        "--name", "family", "--memory", "400m", "--interval", "0.2s", "--", sys.executable, "-c", _FAMILY
    )
    assert record.attempt is not None
    page = dashboard.page
    dashboard.open(f"/jobs/{record.number}")
    expect(page).to_have_title(f"{record.number} family · joblens")
    expect(page.locator(".job-head .state")).to_have_text("running")
    expect(page.locator(".connection")).to_have_text("Live")
    log = page.get_by_label("Output of the job")
    expect(log.locator(".ansi-2")).to_have_text("started")
    expect(log).to_contain_text("step 20")  # printed after the page was opened
    duration = page.locator(".job-tiles .tile-value").first
    before = duration.inner_text()
    expect(duration).not_to_have_text(before)
    expect(page.locator("figure.chart .u-over").first).to_be_visible()
    assert "limit 400.0 MiB" in page.locator("figure.chart", has_text="Memory").first.inner_text()
    tree = page.get_by_role("group", name="Process tree")
    expect(tree.locator("li li .process-name", has_text=re.compile("^sh$"))).to_be_visible(timeout=20_000)
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator(".job-head .state")).to_have_text("cancelled")
    expect(page.get_by_role("region", name="Findings")).to_contain_text("cancelled")
    assert not os.path.exists(f"/proc/{record.attempt.pid}")
    expect(page.get_by_role("button", name="Rerun")).to_be_visible()
    expect(page.locator(".connection")).to_have_text("")


def test_nothing_is_lost_or_repeated_after_a_break(dashboard: Watched, tmp_path: Path) -> None:
    job = SyntheticJob(dashboard.server, age_s=60, logs=tmp_path / "logs", name="broken line")
    job.take(5)
    job.print("line 0\nline 1\nhalf")
    page = dashboard.page
    dashboard.open(f"/jobs/{job.uuid}")
    expect(page.locator(".connection")).to_have_text("Live")
    assert len(rows_of_numbers(page, "CPU")) == 5
    with dashboard.cut_off():
        expect(page.locator(".connection")).to_have_text("Reconnecting…")
        job.take(7)
        job.print(" a line\n" + "".join(f"line {number}\n" for number in range(3, 900)))
        page.wait_for_timeout(300)
        assert len(rows_of_numbers(page, "CPU")) == 5
    expect(page.locator(".connection")).to_have_text("Live", timeout=20_000)
    expect(page.get_by_label("Output of the job")).to_contain_text("line 899")
    times = rows_of_numbers(page, "CPU")
    assert len(times) == len(set(times)) == 12
    lines = page.locator(".log-line").all_inner_texts()
    assert lines == ["line 0", "line 1", "half a line", *(f"line {number}" for number in range(3, 900))]
    job.take(1)
    job.end(
        Status.FAILED, findings=(Finding("exit-code", Severity.PROBLEM, "exit code 1", "read its output"),)
    )
    expect(page.locator(".job-head .state")).to_have_text("failed")
    expect(page.get_by_role("region", name="Findings")).to_contain_text("read its output")
    assert len(rows_of_numbers(page, "CPU")) == 13


def test_curves_are_asked_for_once_while_the_script_loads(dashboard: Watched) -> None:
    page = dashboard.page
    job = SyntheticJob(dashboard.server, age_s=60, name="one")
    job.take(20)
    job.end()
    dashboard.requests.clear()
    dashboard.open("/jobs/1")
    expect(page.locator(".chart canvas").first).to_be_visible()
    assert [each for each in dashboard.requests if "/charts" in each] == [
        f"{dashboard.server.started.url}/api/v1/jobs/1/{FIRST_CHARTS}"
    ]
    how = page.evaluate(
        "() => performance.getEntriesByType('resource').find((each) => each.name.includes('/charts'))"
        ".initiatorType"
    )
    assert how == "link"  # of the document: not of the script


def test_zoom_is_shared_kept_in_the_address_and_asks_for_more_points(dashboard: Watched) -> None:
    job = SyntheticJob(
        dashboard.server, age_s=6000, name="long", requirements=Requirements(memory_bytes=64 * MIB)
    )
    job.take(6000)
    job.end()
    page = dashboard.page
    dashboard.open(f"/jobs/{job.uuid}")
    over = page.locator("figure.chart .u-over").first
    box = over.bounding_box()
    assert box is not None
    y = box["y"] + 30
    page.mouse.move(box["x"] + box["width"] * 0.4, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=4)
    with page.expect_request(lambda request: "begin_us" in request.url):
        page.mouse.up()
    expect(page).to_have_url(re.compile(r"zoom=2[34]\d\d\.\d+-3[56]\d\d\.\d+"))
    whole = page.get_by_role("button", name="Whole time")
    expect(whole).to_be_enabled()
    assert len(rows_of_numbers(page, "CPU")) > 100
    shown = page.locator(".job-toolbar .number").inner_text()
    page.reload()
    expect(page.locator(".job-toolbar .number")).to_have_text(shown)
    page.get_by_role("button", name="Later").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".job-toolbar .number")).not_to_have_text(shown)
    moved = page.locator(".job-toolbar .number").inner_text()
    plot = page.locator("figure.chart .u-over").first
    plot.hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    expect(page.locator(".job-toolbar .number")).not_to_have_text(moved)
    closer = page.locator(".job-toolbar .number").inner_text()
    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.3, y, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    expect(page.locator(".job-toolbar .number")).not_to_have_text(closer)
    page.get_by_role("button", name="Later").focus()
    page.keyboard.press("0")
    expect(page).not_to_have_url(re.compile("zoom"))
    expect(whole).to_be_disabled()
    # One cursor for all charts: the legend of another one shows a time too.
    page.mouse.move(box["x"] + box["width"] * 0.5, y)
    expect(page.locator("figure.chart .u-legend .u-value").nth(0)).to_contain_text(":")
    memory = page.locator("figure.chart", has=page.locator(".chart-title", has_text="Memory"))
    expect(memory.locator(".u-value").first).to_contain_text(":")
    for part in ("anonymous", "shared", "kernel", "file cache", "in use"):
        expect(memory.locator(".u-legend")).to_contain_text(part)


_PIXELS = """(canvas) => {
    const [r, g, b] = getComputedStyle(document.documentElement).getPropertyValue("--series-1").trim()
        .match(/[0-9a-f]{2}/gi).map((each) => parseInt(each, 16));
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let found = 0;
    for (let at = 0; at < data.length; at += 4) {
        found += Number(data[at] === r && data[at + 1] === g && data[at + 2] === b && data[at + 3] === 255);
    }
    return found;
}"""


def test_pointing_at_a_chart_moves_nothing_and_lone_values_are_dots(dashboard: Watched) -> None:
    job = SyntheticJob(
        dashboard.server, age_s=60, name="short", requirements=Requirements(memory_bytes=64 * MIB)
    )
    for open_files in (7, None, None, 7):  # read less often than the rest
        job.take(1, interval_us=10 * SECOND, open_files=open_files)
    job.end()
    page = dashboard.page
    dashboard.open(f"/jobs/{job.uuid}")
    plot = page.locator("figure.chart .u-over").first
    expect(plot).to_be_visible()
    heights = "() => [...document.querySelectorAll('figure.chart')].map((each) => each.offsetHeight)"
    before = page.evaluate(heights)
    expect(page.locator("figure.chart .u-value").first).to_be_hidden()
    plot.hover()
    expect(page.locator("figure.chart .u-value").first).to_be_visible()
    assert page.evaluate(heights) == before
    files = page.locator("figure.chart").filter(has_text="open files")
    files.scroll_into_view_if_needed()
    canvas = files.locator(".u-wrap canvas")
    expect(canvas).to_be_visible()
    page.mouse.move(0, 0)
    assert canvas.evaluate(_PIXELS) > 4  # two dots, with soft edges


def test_earlier_runs_are_drawn_behind_and_unmeasured_metrics_say_why(dashboard: Watched) -> None:
    server = dashboard.server
    earlier, job = (SyntheticJob(server, age_s=age_s, name="nightly") for age_s in (600, 300))
    earlier.take(40)
    earlier.end()
    job.take(20)
    job.end()
    server.apply(DetailsTaken(job.uuid, Details(unknown={"gpus": "the driver is too old"})))
    page = dashboard.page
    dashboard.open(f"/jobs/{job.uuid}")
    absent = page.locator("figure.chart-absent")
    expect(absent.filter(has_text="GPU")).to_contain_text("Not measured: the driver is too old.")
    expect(absent.filter(has_text="Network")).to_contain_text("Not measured: ")
    assert len(rows_of_numbers(page, "CPU")) == 20
    page.get_by_label("Earlier runs").check()
    expect(page.locator("figure.chart .u-legend").first).to_contain_text("job 1")
    assert len(rows_of_numbers(page, "CPU")) == 40  # that run was longer
    page.get_by_label("Earlier runs").uncheck()
    expect(page.locator("figure.chart .u-legend").first).not_to_contain_text("job 1")


def test_each_gpu_has_its_charts_and_endpoints_have_their_numbers(dashboard: Watched) -> None:
    job = SyntheticJob(dashboard.server, age_s=90, name="gpus")
    rows = [replace(row, at_us=job.began_us + row.elapsed_us) for row in gpu_samples()]
    table = GPU_DETAILS.endpoints
    assert table is not None
    near = replace(table.endpoints[0], port=5432, rtt_usec=120)
    table = replace(table, endpoints=(*table.endpoints, near))
    dashboard.server.apply(
        SamplesTaken(job.uuid, 0, tuple(rows)), DetailsTaken(job.uuid, replace(GPU_DETAILS, endpoints=table))
    )
    job.count = len(rows)
    job.end()
    page = dashboard.page
    dashboard.open(f"/jobs/{job.uuid}")
    titles = page.locator("figure.chart .chart-title")
    expect(titles.filter(has_text="GPU 0 Tesla T4: memory")).to_be_visible()
    expect(titles.filter(has_text="GPU 1 UHD Graphics")).not_to_have_count(0)
    endpoints = page.get_by_role("region", name="Network endpoints")
    expect(endpoints.get_by_role("row").filter(has_text="192.0.2.7:443")).to_contain_text("12.30ms")
    expect(endpoints.get_by_role("row").filter(has_text="192.0.2.7:5432")).to_contain_text("0.12ms")
    expect(endpoints).to_contain_text("[::]:8080")


def test_two_gigabytes_of_output_are_read_in_windows(dashboard: Watched, tmp_path: Path) -> None:
    job = SyntheticJob(dashboard.server, age_s=60, logs=tmp_path / "logs", name="talkative")
    path = tmp_path / "logs" / "stdout.log"
    path.write_text("the first line\n" + "".join(f"early {number}\n" for number in range(2000)))
    with open(path, "r+b") as file:
        file.seek(2 << 30)
        file.write(b"\n" + b"".join(b"late %d\n" % number for number in range(3000)))
        file.write(
            b"\x1b[1;31mError\x1b[0m \x1b]8;;http://evil\x07link\x1b]8;;\x07 \x1b[2J\x1b[?25l<b>bold</b>\n"
        )
    page = dashboard.page
    sizes: list[int] = []
    page.on("response", lambda found: sizes.append(int(found.headers.get("content-length", "0"))))
    dashboard.open(f"/jobs/{job.uuid}")
    log = page.get_by_label("Output of the job")
    expect(log.locator(".ansi-1.ansi-bold")).to_have_text("Error")
    assert log.locator(".log-line").last.inner_text() == "Error link <b>bold</b>"
    assert log.locator(".log-line").count() <= 400
    expect(page.locator(".log-foot")).to_contain_text("2.0 GiB")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(log.locator(".log-line").first).to_have_text("the first line")
    page.get_by_label("Search output").fill("LATE 2999")
    page.keyboard.press("Enter")
    expect(page.locator(".log-match")).to_have_text("late 2999", timeout=20_000)
    page.get_by_label("Search output").fill("early 7")
    page.get_by_role("button", name="Previous match").click()
    expect(page.locator(".log-match")).to_have_text("early 799", timeout=20_000)
    page.get_by_label("Search output").fill("nowhere")
    page.keyboard.press("Enter")
    expect(page.locator(".log-search")).to_contain_text("not found", timeout=20_000)
    page.get_by_role("button", name="Follow").click()
    job.print("and more\n")
    expect(log).to_contain_text("and more")
    log.evaluate("node => { node.scrollTop = 0 }")
    expect(log).to_contain_text("late 2300")  # loaded when the reader came near
    assert max(sizes) < 1 << 20
    assert page.locator(".log-line").count() <= 1600


def test_readers_see_no_buttons_and_are_refused(open_page: OpenPage, server: Served, tmp_path: Path) -> None:
    job = SyntheticJob(server, age_s=30, logs=tmp_path / "logs", name="private", tags=("night",))
    for role, buttons in ((Role.READER, []), (Role.OPERATOR, ["Cancel"])):
        visitor = open_page()
        visitor.sign_in_with(server.token(role))
        expect(visitor.page.get_by_role("heading", name="Overview", level=1)).to_be_attached()
        visitor.open(f"/jobs/{job.uuid}")
        expect(visitor.page.locator(".job-head .state")).to_have_text("running")
        assert visitor.page.locator(".job-actions button").all_inner_texts() == buttons
        assert visitor.page.get_by_role("button", name="Add a note").count() == len(buttons)
    reader = open_page()
    reader.may_lose_requests = True  # refused
    reader.sign_in_with(server.token(Role.READER))
    expect(reader.page.get_by_role("heading", name="Overview", level=1)).to_be_attached()
    status = reader.page.evaluate(
        "async path => (await fetch(path, {method: 'POST', headers: {'x-csrf-token':"
        " JSON.parse(document.getElementById('joblens-boot').textContent).session.csrf}})).status",
        f"/api/v1/jobs/{job.uuid}/cancel",
    )
    assert status == 403
    with server.store() as store:
        assert store.find(job.uuid).status is Status.RUNNING


def test_notes_tags_rerun_and_deletion(dashboard: Watched, start_job: StartJob) -> None:
    record = start_job("--name", "short", "--tag", "old", "--", "sh", "-c", "sleep 0.5; echo done")
    page, server = dashboard.page, dashboard.server
    dashboard.open(f"/jobs/{record.number}")
    expect(page.locator(".job-head .state")).to_have_text("success")
    expect(page.locator(".job-command code")).to_have_text("sh -c 'sleep 0.5; echo done'")
    page.get_by_label("Add a tag").first.fill("<b>new</b>")
    page.keyboard.press("Enter")
    expect(page.locator(".chip", has_text="<b>new</b>")).to_be_visible()
    page.get_by_role("button", name="Remove the tag old").click()
    expect(page.locator(".chip", has_text="old")).to_have_count(0)
    page.get_by_label("Add a note").first.fill("looks <i>good</i>")
    page.keyboard.press("Enter")
    expect(page.locator(".note-text")).to_have_text("looks <i>good</i>")
    expect(page.get_by_role("region", name="Provenance")).to_contain_text("Kernel")
    expect(page.get_by_role("region", name="Right-size")).to_contain_text("From 1 job of this name")
    page.locator(".job-actions summary").click()
    with page.expect_download() as saved:
        page.get_by_role("link", name="Samples (CSV)").click()
    assert saved.value.suggested_filename == f"job-{record.number}-samples.csv"
    page.get_by_role("button", name="Rerun").click()
    page.get_by_role("button", name="Rerun the job").click()
    expect(page).to_have_url(re.compile(rf"/jobs/{(record.number or 0) + 1}$"))
    expect(page.locator(".job-head .state")).to_have_text("success", timeout=20_000)
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("cannot be undone")
    page.get_by_role("button", name="Delete the job").click()
    expect(page).to_have_url(re.compile("/jobs$"))
    assert server.get(f"/api/v1/jobs/{(record.number or 0) + 1}").status == 404


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (320, "light")])
def test_it_is_accessible_and_takes_hostile_text(
    open_page: OpenPage, server: Served, tmp_path: Path, width: int, scheme: str
) -> None:
    job = SyntheticJob(
        server,
        age_s=60,
        logs=tmp_path / "logs",
        name=HOSTILE,
        tags=("<script>window.hacked=1</script>",),
        params={HOSTILE[:60]: HOSTILE},
    )
    job.take(30)
    job.print(f"{HOSTILE}\n" * 3, "stderr")
    job.end(
        Status.FAILED,
        findings=(Finding("exit-code", Severity.PROBLEM, HOSTILE, HOSTILE),),
        stderr_bytes=1000,
    )
    visitor = open_page(
        viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
    )
    visitor.sign_in()
    visitor.open(f"/jobs/{job.uuid}")
    page = visitor.page
    page.locator("figure.chart").first.scroll_into_view_if_needed()
    expect(page.locator("figure.chart .u-over").first).to_be_visible()
    expect(page.get_by_label("Output of the job")).to_contain_text("<img src=x")
    expect(page.get_by_role("heading", level=1)).to_contain_text(SHOWN)  # it reads as it is written
    began = datetime.fromtimestamp(job.began_us / 1e6, ZoneInfo("Europe/Berlin"))  # the reader's zone
    expect(page.locator(".job-where")).to_contain_text(f"started {began:%Y-%m-%d %H:%M:%S}")
    expect(page.get_by_role("region", name="Provenance")).to_contain_text("never started")
    for summary in page.locator("details.more > summary").all():
        summary.click()
    visitor.check_accessibility()
    assert page.locator("img").count() == 0
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= width


_FLAKY = """
name: retried
failure_handlers: [{name: again, rules: [{exit_codes: [75], max_retries: 2}]}]
jobs: [{name: flaky, command: "test $JOBLENS_ATTEMPT -ge 3 || exit 75", failure_handler: again}]
"""


def test_attempts_of_a_workflows_job_lead_to_each_other(dashboard: Watched, tmp_path: Path) -> None:
    store = dashboard.server.settings.store.url
    (tmp_path / "flaky.yaml").write_text(_FLAKY)
    environment = {**os.environ, "JOBLENS_STORE": str(store)}
    done = completed_joblens("run", tmp_path / "flaky.yaml", env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = dashboard.page
    dashboard.open("/jobs/1")
    attempts = page.get_by_role("region", name="Attempts")
    expect(attempts.locator(".state")).to_have_text(["failed", "failed", "success"])
    expect(attempts.locator("[aria-current=page]")).to_have_text("1")
    expect(page.get_by_role("region", name="Findings")).to_contain_text("exit code 75")
    attempts.get_by_role("link", name="3").click()
    expect(page).to_have_url(re.compile("/jobs/3$"))
    expect(page.locator(".job-head .state")).to_have_text("success")
    expect(page.locator(".job-where").get_by_role("link", name="its run")).to_be_visible()


def test_the_process_tree_is_that_of_the_time_under_the_pointer(dashboard: Watched) -> None:
    job = SyntheticJob(dashboard.server, age_s=100, name="family")
    job.take(100)

    def process(pid: int, name: str, parent: int, start_s: int, end_s: int | None) -> ThreadUse:
        return ThreadUse(
            pid=pid,
            tid=pid,
            name=name,
            parent=parent,
            cpu_usec=pid * SECOND,
            started_at_us=job.began_us + start_s * SECOND,
            ended_at_us=None if end_s is None else job.began_us + end_s * SECOND,
        )

    family = (
        process(10, "main", 1, 0, None),
        process(11, "early", 10, 5, 30),
        process(12, HOSTILE[:40], 10, 50, 99),
        process(13, "grandchild", 12, 55, 99),
    )
    table = ThreadTable(at_us=job.began_us + 100 * SECOND, threads=family, seen=4)
    dashboard.server.apply(DetailsTaken(job.uuid, Details(threads=table)))
    job.end()
    page = dashboard.page
    dashboard.open(f"/jobs/{job.uuid}")
    tree = page.get_by_role("group", name="Process tree")
    expect(tree.locator(".process-name")).to_have_count(4)
    expect(tree.locator("li li li .process-name")).to_have_text("grandchild")
    slider = page.get_by_role("slider", name="Time of the process tree")
    slider.fill("200")
    expect(tree.locator(".process-name")).to_have_text(["main", "early"])
    slider.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"^at \d\d:\d\d:\d\d$"))
    plot = page.locator("figure.chart .u-over").first
    box = plot.bounding_box()
    assert box is not None
    plot.hover(position={"x": box["width"] * 0.8, "y": 20})
    expect(tree.locator(".process-name")).to_have_text(["main", SHOWN[:40], "grandchild"])
