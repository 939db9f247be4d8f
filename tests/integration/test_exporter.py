"""`joblens exporter`: a real process that serves a real store."""

import contextlib
import http.client
import os
import socket
import stat
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.app.metrics.scraper import MetricOptions, Scraper
from joblens.stores.sqlite import SqliteStore
from tests.builders.writes import NOON_US, SECOND, whole_job
from tests.conftest import RunJoblens, wait_until
from tests.prometheus_server import exporter, scrape

ANY = "127.0.0.1:0"


@contextlib.contextmanager
def a_running_job(tmp_path: Path, *options: str) -> Iterator[None]:
    """A real job that runs until the block ends."""
    gate = tmp_path / "open"
    script = f"until [ -e {gate} ]; do sleep 0.05; done"
    command = [
        sys.executable,
        "-m",
        "joblens",
        "run",
        *options,
        "--interval",
        "200ms",
        "--",
        "sh",
        "-c",
        script,
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            gate.touch()
            assert process.wait(30.0) == 0


def rows(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]


def test_every_end_is_counted_once_however_many_there_are(tmp_path: Path) -> None:
    now_us = NOON_US
    with contextlib.closing(SqliteStore(str(tmp_path / "jobs.db"))) as store:
        scraper = Scraper(store, MetricOptions(), lambda: now_us)
        scraper.render()
        for count, total in ((3000, 3000), (10, 3010), (0, 3010)):
            now_us += 15 * SECOND
            writes = [whole_job(at_us=now_us + number, name="many") for number in range(count)]
            store.apply([write for job in writes for write in job])
            ends = rows(scraper.render(), "joblens_jobs_ended_total")
            assert f'joblens_jobs_ended_total{{name="many",status="success"}} {total}' in ends


def test_a_running_job_is_there_and_its_end_is_counted(joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("run", "--", "true", code=0)
    with exporter("--listen", ANY) as url:
        with a_running_job(tmp_path, "--name", "wait", "--tag", "team=a", "--memory", "64m"):
            wait_until(lambda: "joblens_memory_bytes{" in scrape(url), what="a sample")
            text = scrape(url)
            assert rows(text, "joblens_jobs") == ['joblens_jobs{name="wait",state="running"} 1']
            assert rows(text, "joblens_tagged_jobs") == [
                'joblens_tagged_jobs{tag="team=a",state="running"} 1'
            ]
            assert rows(text, "joblens_requested_memory_bytes") == [
                'joblens_requested_memory_bytes{name="wait"} 67108864'
            ]
            assert not rows(text, "joblens_job_info"), "series per job are opt-in"
        text = scrape(url)
    ends = rows(text, "joblens_jobs_ended_total")
    assert 'joblens_jobs_ended_total{name="wait",status="success"} 1' in ends
    assert 'joblens_jobs_ended_total{name="wait",status="failed"} 0' in ends
    assert rows(text, "joblens_job_duration_seconds_count") == [
        'joblens_job_duration_seconds_count{name="wait"} 1'
    ]
    assert not rows(text, "joblens_jobs")


def test_a_client_that_asks_for_openmetrics_gets_it(joblens: RunJoblens) -> None:
    joblens("run", "--", "true", code=0)
    with exporter("--listen", ANY) as url:
        text = scrape(url, Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert text.endswith("# EOF\n")


def test_a_token_is_asked_for_and_checked(joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("run", "--", "true", code=0)
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123\n")
    token.chmod(0o600)
    with exporter("--listen", ANY, "--token-file", str(token)) as url:
        for header in ({}, {"Authorization": "Bearer 0123"}, {"Authorization": "Basic 0123456789abcdef0123"}):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                scrape(url, **header)
        assert "joblens_build_info" in scrape(url, Authorization="Bearer 0123456789abcdef0123")


def test_other_addresses_need_a_token(joblens: RunJoblens) -> None:
    joblens("run", "--", "true", code=0)
    done = joblens("exporter", "--listen", "0.0.0.0:0", code=2)
    assert "--token-file" in done.stderr


def test_a_port_in_use_is_named_with_what_to_do(joblens: RunJoblens) -> None:
    joblens("run", "--", "true", code=0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        done = joblens("exporter", "--listen", listen, code=125)
    assert f"--listen {listen}: Address already in use" in done.stderr
    assert "choose another" in done.stderr


def test_a_host_name_that_points_here_is_refused(joblens: RunJoblens) -> None:
    joblens("run", "--", "true", code=0)
    with exporter("--listen", ANY) as url, pytest.raises(urllib.error.HTTPError, match="421"):
        scrape(url, Host="evil.example.org")


def test_paths_and_methods_other_than_get_metrics_are_refused(joblens: RunJoblens) -> None:
    joblens("run", "--", "true", code=0)
    with exporter("--listen", ANY) as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
        for method, path, status in (
            ("GET", "/", 404),
            ("POST", "/metrics", 501),
            ("GET", "/metrics/../x", 404),
        ):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request(method, path)
            assert connection.getresponse().status == status
            connection.close()


def test_clients_that_say_nothing_do_not_keep_others_out(joblens: RunJoblens) -> None:
    joblens("run", "--", "true", code=0)
    with exporter("--listen", ANY) as url, contextlib.ExitStack() as silent:
        port = int(url.rpartition(":")[2].partition("/")[0])
        for _ in range(7):
            silent.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert "joblens_build_info" in scrape(url)


def test_a_unix_socket_is_for_its_owner_alone_and_removed_at_the_end(
    joblens: RunJoblens, tmp_path: Path
) -> None:
    joblens("run", "--", "true", code=0)
    path = tmp_path / "metrics.sock"
    with exporter("--listen", f"unix:{path}"):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert b"joblens_build_info" in answer
    assert not path.exists()


def test_a_file_where_the_unix_socket_should_be_stays(joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("run", "--", "true", code=0)
    path = tmp_path / "thesis.txt"
    path.write_text("years of work")
    done = joblens("exporter", "--listen", f"unix:{path}", code=2)
    assert "exists and is not a socket" in done.stderr
    assert path.read_text() == "years of work"


def test_a_textfile_is_written_once(joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("run", "--", "true", code=0)
    path = tmp_path / "joblens.prom"
    joblens("exporter", "--textfile", path, "--once", code=0)
    assert path.read_text().startswith("# HELP joblens_build_info")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [one.name for one in tmp_path.iterdir() if "part" in one.name] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--compat", "cgroup,slurm"), "unknown name 'slurm'"),
        (("--once",), "--once needs --textfile"),
        (("--textfile", "x", "--listen", "1"), "--textfile cannot be combined"),
        (("--interval", "10ms"), "too short"),
        (("--textfile", "/nowhere/x.prom"), "cannot be written"),
        (("--token-file", "/nowhere/token"), "cannot be read"),
    ],
)
def test_wrong_options_are_refused(joblens: RunJoblens, options: tuple[str, ...], message: str) -> None:
    joblens("run", "--", "true", code=0)
    done = joblens("exporter", *options, code=2)
    assert message in done.stderr


def test_a_store_that_is_not_there_is_an_error(joblens: RunJoblens) -> None:
    assert "there is no store" in joblens("exporter", code=2).stderr
