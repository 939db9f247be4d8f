"""`joblens report`: real jobs in one file."""

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import RunJoblens
from tests.report_files import OpenedReport

pytest.importorskip("uplot")

HOSTILE = "</script><img src=x onerror=alert(1)>"
RETRIED = """name: again
failure_handlers:
  - name: again
    rules: [{exit_codes: [75]}]
jobs:
  - name: flaky
    command: test -e made || { touch made; exit 75; }
    failure_handler: again
"""
WORKFLOW = """name: pair
jobs:
  - name: first
    command: echo one
  - name: second
    command: echo two
    depends_on: [first]
"""


def test_a_report_has_everything_about_its_jobs(joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("run", "--name", HOSTILE, "--interval", "50ms", "--", "sh", "-c", "echo shown; sleep 0.4", code=0)
    joblens("run", "--name", "bad", "--", "sh", "-c", "echo why >&2; exit 3", code=3)
    done = joblens("report", "--since", "1h", "-o", "r.html", "--title", "Night", "--json", code=0)
    assert done.json == {
        "jobs": 2,
        "runs": 0,
        "failed": 1,
        "retried": 0,
        "unknown_secrets": [],
        "files": ["r.html"],
        "bytes": (tmp_path / "r.html").stat().st_size,
    }
    report = OpenedReport(tmp_path / "r.html")
    assert report.manifest["title"] == "Night"
    assert report.manifest["totals"]["states"] == {"failed": 1, "success": 1}
    (failure,) = report.manifest["failures"]
    assert failure["name"] == "bad"
    assert "exit code 3" in failure["reason"]
    assert sorted(report.rows["name"]) == sorted([HOSTILE, "bad"])
    jobs = {job[""]["job"]["name"]: job for job in report.items("jobs")}
    good = jobs[HOSTILE]
    assert [line["text"] for line in good["logs/stdout/window"]["lines"]] == ["shown"]
    assert [line["text"] for line in jobs["bad"]["logs/stderr/window"]["lines"]] == ["why"]
    cpu = next(chart for chart in good["charts"]["charts"] if chart["key"] == "cpu")
    assert len(cpu["curves"][0]["values"]) == len(good["charts"]["at_steps"]) > 2
    assert report.items("provenances")[good["provenance"]]["host"]
    assert len(report.items("comparisons")) == 1
    assert "<img" not in report.text


def test_a_job_that_a_later_attempt_made_good_has_not_failed(joblens: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "again.yaml").write_text(RETRIED)
    joblens("run", "again.yaml", code=0)
    done = joblens("report", "again", "-o", "r.html", "--json", code=0)
    assert (done.json["jobs"], done.json["failed"], done.json["retried"]) == (2, 0, 1)
    assert "report of 2 attempts and 1 run" in joblens("report", "again", "-o", "r.html", code=0).stderr
    assert "plots of 2 attempts" in joblens("plot", "again", code=0).stderr
    manifest = OpenedReport(tmp_path / "r.html").manifest
    assert manifest["totals"]["states"] == {"retried": 1, "success": 1}
    assert manifest["failures"] == []


def test_a_report_loads_nothing(joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("run", "--", "true", code=0)
    joblens("report", "1", code=0)
    page = (tmp_path / "report.html").read_text()
    assert not re.findall(r"""(?:src|href)=["'](?!data:)[^"']*["']""", page.split("<body>")[0])
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]*\ssrc=", page)
    assert os.stat(tmp_path / "report.html").st_mode & 0o077 == 0


def test_a_run_has_its_graph_timeline_and_jobs(joblens: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(WORKFLOW)
    joblens("run", "w.yaml", code=0)
    joblens("run", "--name", "another", "--", "true", code=0)
    joblens("report", "pair", "-o", "run.html", code=0)
    report = OpenedReport(tmp_path / "run.html")
    assert report.manifest["title"] == "Run 1.1 of pair"
    assert sorted(report.rows["name"]) == ["first", "second"]
    (run,) = report.items("runs")
    assert run["table"]["rows"]["name"] == ["first", "second"]
    assert [box["title"] for box in run["graph"]["graph"]["boxes"]] == ["first", "second"]
    assert run["timeline"]["timeline"]["attempts"] == 2
    (uuid,) = report.manifest["runs"]
    assert report.rows["run"] == [uuid, uuid]


def test_secrets_are_nowhere_in_a_report(joblens: RunJoblens, tmp_path: Path) -> None:
    secrets = ("sw0rdfish", "hunter2222", "ghp_0123456789abcdefghijABCDEFGHIJ", "t0psecret")
    joblens(
        *("run", "--name", "leak", "--param", f"password={secrets[0]}", "--env", f"DB_TOKEN={secrets[1]}"),
        *("--", "sh", "-c", f'echo "token: {secrets[2]}"; echo "$DB_TOKEN"; : --api-key {secrets[3]}'),
        code=0,
    )
    done = joblens("report", "leak", "-o", "r.html", code=0, env={"DB_TOKEN": secrets[1]})
    everything = OpenedReport(tmp_path / "r.html").everything
    assert "leak" in everything
    for secret in secrets:
        assert secret not in everything
    assert "may contain values of password," in done.stderr  # not printed, which is not known


def test_secrets_that_cannot_be_hidden_are_named(joblens: RunJoblens) -> None:
    joblens(
        "run", "--name", "leak", "--env", "DB_TOKEN=hunter2222", "--", "sh", "-c", "echo $DB_TOKEN", code=0
    )
    done = joblens("report", "leak", code=0)
    assert "may contain values of DB_TOKEN," in done.stderr
    done = joblens("report", "leak", "--log-lines", "0", "--json", code=0)
    assert done.json["unknown_secrets"] == []
    assert "warning" not in done.stderr


def test_paths_are_hidden_if_asked_for(joblens: RunJoblens, tmp_path: Path) -> None:
    folder = tmp_path / "private folder"
    folder.mkdir()
    joblens("run", "--name", "here", "--", "sh", "-c", 'echo "in $PWD/x.txt"', cwd=folder, code=0)
    joblens("report", "here", "-o", "open.html", code=0)
    joblens("report", "here", "-o", "closed.html", "--redact-paths", code=0)
    assert str(folder) in OpenedReport(tmp_path / "open.html").everything
    closed = OpenedReport(tmp_path / "closed.html").everything
    for hidden in (str(folder), str(tmp_path), "private folder", tmp_path.name):
        assert hidden not in closed
    assert "[…]/x.txt" in closed
    assert "[…]/sh" in closed or '"sh"' in closed


def test_fewer_points_and_lines_are_written_if_asked_for(joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("run", "--interval", "50ms", "--", "sh", "-c", "seq 100; sleep 0.8", code=0)
    joblens("report", "1", "-o", "r.html", "--points", "10", "--log-lines", "3", code=0)
    (job,) = OpenedReport(tmp_path / "r.html").items("jobs")
    assert len(job["charts"]["at_steps"]) <= 12
    assert [line["text"] for line in job["logs/stdout/window"]["lines"]] == ["98", "99", "100"]


def test_a_report_of_a_server_is_that_of_its_store(joblens: RunJoblens, tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    from tests.integration.served import Served

    joblens("run", "--name", "there", "--", "echo", "far away", code=0)
    with Served(tmp_path, store=os.environ["JOBLENS_STORE"]) as server:
        url = server.started.url
        env = {"JOBLENS_TOKEN": server.token(), "JOBLENS_STORE": ""}
        joblens("report", "there", "-o", "r.html", "--server", url, env=env, code=0)
    (job,) = OpenedReport(tmp_path / "r.html").items("jobs")
    assert [line["text"] for line in job["logs/stdout/window"]["lines"]] == ["far away"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "a report needs jobs, runs or filters"),
        (("nothing",), "no job, workflow or run has the ID 'nothing'"),
        (("--status", "timeout"), "no job matches"),
        (("1", "--status", "success"), "give jobs and runs, or filters"),
        (("1", "-o", "no/such/folder/r.html"), "cannot be written"),
        (("1", "-o", "-"), "standard output cannot be used here"),
        (("1", "-o", "."), "is a directory"),
        (("1", "--points", "3"), "--points"),
    ],
)
def test_a_wrong_request_says_what_to_do(
    joblens: RunJoblens, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    joblens("run", "--", "true", code=0)
    done = joblens("report", *arguments, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.glob("*.html*")) == []


def test_a_pdf_needs_chromium(joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("run", "--", "true", code=0)
    done = joblens("report", "1", "-o", "r.html", "--pdf", env={"PATH": "/nowhere"}, code=2)
    assert "a PDF needs Chromium" in done.stderr
    assert list(tmp_path.glob("r.*")) == []


@pytest.mark.server
@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
def test_a_pdf_has_the_summary_the_table_and_a_page_per_job(joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("run", "--name", "printed", "--interval", "50ms", "--", "sh", "-c", "echo out; sleep 0.3", code=0)
    joblens("report", "printed", "-o", "r.pdf", code=0, timeout=120)
    pdf = (tmp_path / "r.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    assert pages >= 3
    pictures = len(re.findall(rb"/Subtype\s*/Image\b", pdf))
    assert pictures >= 3  # charts were drawn before it was printed
    assert list(tmp_path.glob("r.html")) == []
