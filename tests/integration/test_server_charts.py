"""Charts, earlier runs, advice, log search, downloads and comparison over the API."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from msgspec import convert, json
from msgspec.structs import replace

from joblens.app.server.charts import JobCharts
from joblens.app.server.downloads import log_chunks
from joblens.app.server.log_window import LogWindow
from joblens.app.server.logs import LogFile
from joblens.model.access import Scope
from joblens.model.jobs.details import Details, GpuFacts
from joblens.model.jobs.job import Finding, Requirements, Severity, Status, Usage
from joblens.model.jobs.sample import GpuReading, Sample
from joblens.model.writes import DetailsTaken, SamplesTaken
from tests.builders.writes import NOON_US, SECOND, ended, queued, started
from tests.integration.served import Served

API = "/api/v1"
MIB = 1 << 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as one:
        yield one


def sample(second: int, **fields: Any) -> Sample:
    return Sample(at_us=NOON_US + second * SECOND, elapsed_us=second * SECOND, **fields)


def job(
    server: Served,
    samples: list[Sample] | None = None,
    *,
    status: Status | None = Status.SUCCESS,
    at_us: int = NOON_US,
    end: dict[str, Any] | None = None,
    start: dict[str, Any] | None = None,
    details: Details | None = None,
    **fields: Any,
) -> str:
    made = queued(at_us=at_us, **fields)
    uuid = made.job.uuid
    moved = tuple(replace(each, at_us=each.at_us - NOON_US + at_us) for each in samples or [])
    server.apply(made, started(uuid, at_us=at_us, **(start or {})), SamplesTaken(uuid, 0, moved))
    if details is not None:
        server.apply(DetailsTaken(uuid, details))
    if status is not None:
        server.apply(ended(uuid, status, at_us=at_us + 10 * SECOND, **{"duration_s": 10.0, **(end or {})}))
    return uuid


def charts(server: Served, uuid: str, query: str = "") -> JobCharts:
    answer = server.get(f"{API}/jobs/{uuid}/charts{query}")
    assert answer.status == 200, answer.text
    return convert(answer.json, JobCharts, strict=False)


def curve(found: JobCharts, chart: str, key: str) -> list[float | None]:
    (one,) = [each for each in found.charts if each.key == chart]
    (values,) = [each.values for each in one.curves if each.key == key]
    return list(values)


def busy(second: int, **fields: Any) -> Sample:
    return sample(
        second,
        cpu_total_usec=second * SECOND // 2,
        memory_anon_bytes=(second + 1) * MIB,
        memory_shmem_bytes=MIB,
        memory_file_bytes=3 * MIB,
        memory_kernel_bytes=MIB,
        io_read_bytes=second * 1000,
        processes=2,
        threads=4,
        **fields,
    )


def test_one_request_has_every_chart_with_limits_and_reasons(server: Served) -> None:
    usage = Usage(unknown={"network_rx_bytes": "BPF is not permitted here"})
    uuid = job(
        server,
        [busy(second) for second in range(5)],
        requirements=Requirements(cpus=2, memory_bytes=64 * MIB),
    )
    found = charts(server, uuid)
    assert found.at_us == [NOON_US + second * SECOND for second in range(5)]
    assert curve(found, "cpu", "cpu_total") == [None, 50.0, 50.0, 50.0, 50.0]
    assert curve(found, "memory", "memory_file") == [2 * MIB] * 5  # without shared memory, drawn apart
    assert curve(found, "memory", "memory_used") == [(second + 3) * MIB for second in range(5)]
    assert curve(found, "io", "io_read")[1:] == [1000.0] * 4
    by_key = {each.key: each for each in found.charts}
    assert list(by_key) == ["cpu", "memory", "io", "network", "gpu", "pressure", "processes", "threads"]
    assert (by_key["cpu"].limit, by_key["memory"].limit) == (200, 64 * MIB)
    assert by_key["network"].unknown
    assert by_key["gpu"].unknown == "the job used no GPU"
    other = job(server, [busy(0), busy(1)], status=None)
    server.apply(replace(ended(other), outcome=replace(ended(other).outcome, usage=usage)))
    reasons = {each.key: each.unknown for each in charts(server, other).charts}
    assert reasons["network"] == "BPF is not permitted here"


def test_few_points_have_every_peak(server: Served) -> None:
    many = [busy(second, open_files=900 if second == 777 else 3) for second in range(2000)]
    found = charts(server, job(server, many), "?points=50")
    assert len(found.at_us) <= 50
    assert found.samples == 2000
    values = curve(found, "threads", "open_files")
    assert values.count(900) == 1
    at_us = found.at_us[values.index(900)]
    assert abs(at_us - (NOON_US + 777 * SECOND)) < 100 * SECOND


def test_a_part_of_the_time_has_rates_from_its_first_point(server: Served) -> None:
    uuid = job(server, [busy(second) for second in range(10)])
    found = charts(server, uuid, f"?begin_us={NOON_US + 6 * SECOND}")
    assert found.at_us == [NOON_US + second * SECOND for second in range(6, 10)]
    assert curve(found, "cpu", "cpu_total") == [50.0] * 4


def test_a_running_job_has_the_same_charts(server: Served) -> None:
    found = charts(server, job(server, [busy(second) for second in range(3)], status=None))
    assert (found.status, found.ended_at_us) == (Status.RUNNING, None)
    assert curve(found, "cpu", "cpu_total")[1:] == [50.0, 50.0]


def test_a_job_without_samples_says_why(server: Served) -> None:
    assert {each.unknown for each in charts(server, job(server)).charts} == {"ended before the first sample"}
    pruned = charts(server, job(server, end={"samples": 4}))
    assert all("deleted" in each.unknown for each in pruned.charts)


@pytest.mark.parametrize(
    ("status", "why"), [(Status.SUCCESS, "too short for a curve"), (None, "no second sample yet")]
)
def test_a_rate_of_one_sample_says_that_there_are_too_few(
    server: Served, status: Status | None, why: str
) -> None:
    uuid = job(server, [sample(0, cpu_total_usec=900, processes=1)], status=status)
    found = {each.key: each for each in charts(server, uuid).charts}
    assert found["cpu"].unknown == why
    assert found["network"].unknown == "this machine does not provide it"
    assert found["processes"].curves


def test_findings_are_marked_when_they_happened(server: Served) -> None:
    killed = [busy(second, oom_kills=1 if second >= 3 else 0) for second in range(5)]
    findings = (
        Finding("out-of-memory", Severity.PROBLEM, "out of memory"),
        Finding("exit-code", Severity.PROBLEM, "exit code 1"),
        Finding("cpus-unused", Severity.WARNING, "half of the CPUs were unused"),
    )
    found = charts(server, job(server, killed, status=Status.FAILED, end={"findings": findings}))
    times = {each.code: each.at_us for each in found.markers}
    assert times == {
        "started": NOON_US,
        "out-of-memory": NOON_US + 3 * SECOND,
        "ended": NOON_US + 10 * SECOND,
        "exit-code": NOON_US + 10 * SECOND,
        "cpus-unused": None,
    }


def test_each_gpu_has_its_charts(server: Served) -> None:
    reading = GpuReading(job_utilization=7000, utilization=9000, job_memory_bytes=MIB, power_mw=250_000)
    details = Details(
        gpus=(GpuFacts(id="GPU-a", vendor="nvidia", index=1, name="H200", memory_total_bytes=8 * MIB),)
    )
    rows = [busy(second, gpus={"GPU-a": reading} if second % 2 == 0 else None) for second in range(5)]
    found = charts(server, job(server, rows, details=details))
    assert curve(found, "gpu:GPU-a:utilization", "job") == [70.0] * 5
    assert curve(found, "gpu:GPU-a:power", "device") == [250.0] * 5
    (memory,) = [each for each in found.charts if each.key == "gpu:GPU-a:memory"]
    assert (memory.title, memory.limit) == ("GPU 1 H200: memory", 8 * MIB)


def test_gpus_come_in_the_order_of_the_machine(server: Served) -> None:
    names = ("GPU-b", "GPU-a")  # of number 0 and 1
    details = Details(
        gpus=tuple(GpuFacts(id=name, vendor="nvidia", index=index) for index, name in enumerate(names))
    )
    reading = GpuReading(utilization=9000)
    rows = [busy(second, gpus={"GPU-a": reading, "GPU-b": reading}) for second in range(5)]
    found = charts(server, job(server, rows, details=details))
    assert [each.key for each in found.charts if each.key.endswith("utilization")] == [
        "gpu:GPU-b:utilization",
        "gpu:GPU-a:utilization",
    ]


def test_earlier_runs_of_the_same_name_newest_first(server: Served) -> None:
    rows = [busy(second) for second in range(4)]
    first, second = (
        job(server, rows, name="train*", at_us=NOON_US + day * 1000 * SECOND) for day in range(2)
    )
    job(server, rows, name="trainer", at_us=NOON_US + 100 * SECOND)
    job(server, name="train*", at_us=NOON_US + 200 * SECOND)  # without samples
    now = job(server, rows, name="train*", at_us=NOON_US + 3000 * SECOND)
    items = server.get(f"{API}/jobs/{now}/earlier").json["items"]
    assert [each["job_uuid"] for each in items] == [second, first]
    assert items[0]["offset_us"] == [0, SECOND, 2 * SECOND, 3 * SECOND]
    assert items[0]["curves"]["cpu"] == [None, 50.0, 50.0, 50.0]


def test_earlier_runs_of_a_job_without_a_name_end_where_one_was_deleted(server: Served) -> None:
    rows = [busy(second) for second in range(4)]
    first = job(server, rows, name="")
    second = job(server, rows, name="", rerun_of=first, at_us=NOON_US + 100 * SECOND)
    third = job(server, rows, name="", rerun_of=second, at_us=NOON_US + 200 * SECOND)
    path = f"{API}/jobs/{third}/earlier"
    assert [each["job_uuid"] for each in server.get(path).json["items"]] == [second, first]
    assert server.ask("DELETE", f"{API}/jobs/{first}").status == 200
    assert [each["job_uuid"] for each in server.get(path).json["items"]] == [second]


def test_jobs_of_others_are_not_read(server: Served) -> None:
    rows = [busy(second) for second in range(4)]
    other = job(server, rows, name="train", user="bob")
    mine = job(server, rows, name="train", user="ana", at_us=NOON_US + 100 * SECOND)
    token = server.token(scope=Scope.OWN, user="ana")
    assert server.get(f"{API}/jobs/{mine}/earlier", token).json["items"] == []
    assert server.get(f"{API}/jobs/{mine}/advice", token).json["jobs"] == 1
    paths = [f"/jobs/{other}/{part}" for part in ("charts", "earlier", "advice", "samples/download")]
    for path in [*paths, f"/jobs/{other}/logs/stdout/search?text=x", f"/compare?job={mine}&job={other}"]:
        assert server.get(API + path, token).status == 404, path
    assert server.get(f"{API}/jobs/{mine}/charts", "").status == 401


def test_advice_has_a_line_to_paste(server: Served) -> None:
    asked = Requirements(cpus=8, memory_bytes=8 << 30)
    uuids = [
        job(
            server,
            [busy(second) for second in range(4)],
            name="train",
            requirements=asked,
            at_us=NOON_US + number * 100 * SECOND,
            end={"memory_bytes": 100 * MIB, "cpu_s": 5.0},
        )
        for number in range(5)
    ]
    found = server.get(f"{API}/jobs/{uuids[-1]}/advice").json
    assert found["jobs"] == 5
    assert "--memory " in found["line"]
    assert found["line_for"] == "command"
    assert {each["resource"] for each in found["advice"]} >= {"memory"}


def logged(server: Served, folder: Path, data: bytes) -> str:
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    (logs / "stdout.log").write_bytes(data)
    return job(server, start={"logs_dir": str(logs)}, end={"stdout_bytes": len(data)})


def test_search_finds_every_match_across_chunks_in_both_directions(server: Served, tmp_path: Path) -> None:
    edge = (1 << 20) - 3
    data = bytearray(b"." * (3 << 20))
    for at in (5, edge, 2 << 20):
        data[at : at + 6] = b"Needle"
    uuid = logged(server, tmp_path, bytes(data))
    search = f"{API}/jobs/{uuid}/logs/stdout/search?text=needle"
    found = server.get(search).json
    assert (found["offsets"], found["next"], found["length"]) == ([5, edge, 2 << 20], None, 6)
    back = server.get(f"{search}&direction=backward").json
    assert (back["offsets"], back["next"]) == ([2 << 20, edge, 5], None)
    assert server.get(f"{search}&ignore_case=false").json["offsets"] == []
    first = server.get(f"{search}&limit=1").json
    assert first["offsets"] == [5]
    rest = server.get(f"{search}&start={first['next']}").json
    assert rest["offsets"] == [edge, 2 << 20]
    before = server.get(f"{search}&direction=backward&start={edge}").json
    assert before["offsets"] == [5]


def test_two_gigabytes_are_searched_in_parts_and_read_in_windows(server: Served, tmp_path: Path) -> None:
    uuid = logged(server, tmp_path, b"start\n")
    path = tmp_path / "logs" / "stdout.log"
    size = 2 << 30
    with open(path, "r+b") as file:
        file.truncate(size - 1)
        file.seek(size - 1024)
        file.write(b"y" * 1000 + b"\nthe last needle\n")
        size = file.tell()
    os.truncate(path, size)
    running = job(server, status=None, start={"logs_dir": str(tmp_path / "logs")})
    found = server.get(f"{API}/jobs/{running}/logs/stdout/search?text=needle&direction=backward").json
    assert found["offsets"][0] == size - len(b"needle\n")
    window = server.get(f"{API}/jobs/{running}/logs/stdout", range=f"bytes={size - 16}-{size - 1}")
    assert (window.status, window.text) == (206, "the last needle\n")
    position: int | None = 0
    seen: list[int] = []
    while position is not None:
        part = server.get(f"{API}/jobs/{running}/logs/stdout/search?text=needle&start={position}").json
        seen += part["offsets"]
        position = part["next"]
    assert seen == [size - len(b"needle\n")]
    assert uuid


def window(server: Served, uuid: str, query: str) -> LogWindow:
    answer = server.get(f"{API}/jobs/{uuid}/logs/stdout/window?{query}")
    assert answer.status == 200, answer.text
    return convert(answer.json, LogWindow, strict=False)


def texts(found: LogWindow) -> list[str]:
    return [line.text for line in found.lines]


def test_windows_of_lines_cover_the_output_in_both_directions(server: Served, tmp_path: Path) -> None:
    wanted = [f"line {number} " + "é" * (number % 90) for number in range(5000)]
    uuid = logged(server, tmp_path, "".join(f"{line}\n" for line in wanted).encode())
    ahead: list[str] = []
    position = 0
    while True:
        found = window(server, uuid, f"part=forward&at={position}&limit=700")
        ahead += texts(found)
        position = found.next
        if position >= found.total:
            break
    assert ahead == wanted
    back: list[str] = []
    found = window(server, uuid, "limit=700")
    while found.lines:
        back = texts(found) + back
        found = window(server, uuid, f"at={found.start}&limit=700")
    assert back == wanted
    middle = window(server, uuid, f"part=around&at={found.total // 2}&limit=10")
    assert len(middle.lines) == 10
    assert all(text.startswith("line ") for text in texts(middle))
    assert middle.lines[0].at < found.total // 2 < middle.lines[-1].at


def test_a_line_that_is_still_printed_comes_again(server: Served, tmp_path: Path) -> None:
    logged(server, tmp_path, b"one\ntw")
    running = job(server, status=None, start={"logs_dir": str(tmp_path / "logs")})
    first = window(server, running, "limit=10")
    assert (texts(first), first.next, first.is_final) == (["one", "tw"], 4, False)
    with open(tmp_path / "logs" / "stdout.log", "ab") as file:
        file.write(b"o\nthree\n")
    second = window(server, running, f"part=forward&at={first.next}")
    assert (texts(second), second.next) == (["two", "three"], second.total)


def test_a_window_skips_dropped_output_and_cuts_endless_lines(server: Served, tmp_path: Path) -> None:
    logged(server, tmp_path, b"start\n")
    with open(tmp_path / "logs" / "stdout.log", "r+b") as file:
        file.seek(2 << 30)
        file.write(b"\nend\n")
    running = job(server, status=None, start={"logs_dir": str(tmp_path / "logs")})
    last = window(server, running, "limit=2")
    assert texts(last) == ["", "end"]
    gap = window(server, running, f"at={last.start}")
    assert "bytes omitted" in " ".join(texts(gap))
    before = window(server, running, f"at={gap.start}")
    assert (before.start, texts(before)[0]) == (0, "start")
    (tmp_path / "endless").mkdir()
    uuid = logged(server, tmp_path / "endless", "ü".encode() * 3_000_000)
    pieces = window(server, uuid, "part=forward&limit=100")
    assert {len(line.text) for line in pieces.lines[:-1]} == {4096}
    assert "\ufffd" not in "".join(texts(pieces))


def test_output_on_another_machine_is_what_the_record_has(server: Served) -> None:
    uuid = job(server, start={"logs_dir": "/nowhere"}, end={"stdout_tail": "a\nb\n"})
    found = window(server, uuid, "")
    assert (texts(found), found.source, found.node) == (["a", "b"], "record", "host")
    assert server.get(f"{API}/jobs/{uuid}/logs/secrets/window").status == 400


def test_a_clock_that_was_set_back_loses_no_point(server: Served) -> None:
    rows = [busy(second) for second in range(10)]
    rows[5:] = [replace(each, at_us=each.at_us - 20 * SECOND) for each in rows[5:]]
    found = charts(
        server, job(server, rows), f"?begin_us={NOON_US + 4 * SECOND}&end_us={NOON_US + 7 * SECOND}"
    )
    assert found.at_us == [NOON_US + second * SECOND for second in range(4, 8)]


def test_samples_and_output_can_be_saved(server: Served, tmp_path: Path) -> None:
    uuid = job(server, [busy(second) for second in range(3)], name="<script>")
    table = server.get(f"{API}/jobs/{uuid}/samples/download")
    assert table.text.count("\n") == 4
    assert table.headers["content-disposition"] == 'attachment; filename="job-1-samples.csv"'
    lines = server.get(f"{API}/jobs/{uuid}/samples/download?format=jsonl").text.splitlines()
    assert [json.decode(line)["index"] for line in lines] == [0, 1, 2]
    data = b"a line\n" * 100_000
    log = server.get(f"{API}/jobs/{logged(server, tmp_path, data)}/logs/stdout?download=true")
    assert log.body == data
    assert "attachment" in log.headers["content-disposition"]
    assert "sandbox" in log.headers["content-security-policy"]


def test_a_download_that_nobody_reads_closes_its_file(server: Served, tmp_path: Path) -> None:
    uuid = logged(server, tmp_path, b"printed")
    with server.store() as store:
        log = LogFile.open(store.find(uuid), "stdout")
    assert log is not None
    chunks = log_chunks(log)
    assert open_logs() == 1
    del log, chunks  # as when the client leaves before the first part
    assert open_logs() == 0


def open_logs() -> int:
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(os.path.lexists(each) and "stdout" in os.readlink(each) for each in links)


def test_jobs_are_compared_with_the_first(server: Served) -> None:
    rows = [busy(second) for second in range(4)]
    idents = [
        job(
            server,
            rows,
            name="sweep",
            params={"rate": rate, "kind": kind, "fixed": 1},
            at_us=NOON_US + int(rate * 1000) * SECOND,
            end={"duration_s": duration, "cpu_s": 1.0},
        )
        for rate, kind, duration in ((0.1, "a", 10.0), (0.2, "b", 10.1), (0.3, "b", 20.0))
    ]
    found = server.get(f"{API}/compare?" + "&".join(f"job={each}" for each in idents)).json
    assert [each["ident"] for each in found["subjects"]] == idents
    (wall,) = [each for each in found["numbers"] if each["key"] == "duration_s"]
    assert wall["verdicts"] == ["baseline", "same", "up"]
    assert wall["percents"][2] == pytest.approx(100)
    differing = {(each["group"], each["name"]): each["values"] for each in found["facts"]}
    assert differing[("parameters", "kind")] == ["a", "b", "b"]
    assert ("parameters", "fixed") not in differing
    axes = {each["title"]: each for each in found["axes"] if each["kind"] == "parameter"}
    assert (axes["rate"]["values"], axes["kind"]["is_category"]) == ([0.1, 0.2, 0.3], True)
    assert [each["offset_us"][-1] for each in found["curves"]] == [3 * SECOND] * 3


@pytest.mark.parametrize("query", ["", "job=1", "job=1&job=1", "job=1&run=2", "job=1&job=2&points=1"])
def test_a_comparison_of_too_few_is_refused(server: Served, query: str) -> None:
    job(server)
    assert server.get(f"{API}/compare?{query}").status == 400
