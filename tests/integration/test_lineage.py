"""OpenLineage events in a file or at a URL, checked with OpenLineage's own classes."""

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY, RunJoblens
from tests.servers import free_port

jsonschema = pytest.importorskip("jsonschema")

SCHEMA = json.loads((REPOSITORY / "contrib" / "openlineage" / "ResourceUsageRunFacet.json").read_text())


@pytest.fixture
def events_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "lineage" / "events.jsonl"
    monkeypatch.setenv("JOBLENS_LINEAGE_FILE", str(path))
    monkeypatch.setenv("JOBLENS_LINEAGE_NAMESPACE", "lab")
    return path


def events(path: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for event in found:
        check(event)
    return found


def check(event: dict[str, Any]) -> None:
    """The resource usage by its schema; everything else by the classes that OpenLineage generates from its
    specification, which refuse unknown fields, missing ones and ids that are no UUID."""
    usage = event["run"]["facets"].get("joblens_resourceUsage")
    if usage is not None:
        jsonschema.validate(usage, SCHEMA["$defs"]["ResourceUsageRunFacet"])
    client = pytest.importorskip("openlineage.client.event_v2")
    from openlineage.client import facet_v2

    classes = {
        "processing_engine": facet_v2.processing_engine_run.ProcessingEngineRunFacet,
        "errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet,
        "parent": facet_v2.parent_run.ParentRunFacet,
        "jobType": facet_v2.job_type_job.JobTypeJobFacet,
        "tags": facet_v2.tags_job.TagsJobFacet,
        "sourceCodeLocation": facet_v2.source_code_location_job.SourceCodeLocationJobFacet,
        "documentation": facet_v2.documentation_job.DocumentationJobFacet,
        "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet,
        "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
    }

    def facets(given: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, facet in given.items():
            if name == "joblens_resourceUsage":
                continue
            known = {key: value for key, value in facet.items() if key not in ("_producer", "_schemaURL")}
            made[name] = classes[name](**known)
            assert facet["_schemaURL"] == made[name]._schemaURL, name
        return made

    assert (
        event["schemaURL"]
        == client.RunEvent(
            eventTime=event["eventTime"],
            producer=event["producer"],
            eventType=client.RunState(event["eventType"]),
            run=client.Run(event["run"]["runId"], facets(event["run"]["facets"])),
            job=client.Job(event["job"]["namespace"], event["job"]["name"], facets(event["job"]["facets"])),
            inputs=[
                client.InputDataset(one["namespace"], one["name"], facets=facets(one["facets"]))
                for one in event["inputs"]
            ],
            outputs=[
                client.OutputDataset(
                    one["namespace"],
                    one["name"],
                    facets=facets(one["facets"]),
                    outputFacets=facets(one.get("outputFacets", {})),
                )
                for one in event["outputs"]
            ],
        ).schemaURL
    )


def test_a_command_starts_and_completes_with_what_it_read_and_made(
    joblens: RunJoblens, events_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("data")
    options = (
        "--name",
        "copy",
        "--memory",
        "64m",
        "--tag",
        "team=a",
        "--input",
        "in.txt",
        "--output",
        "out.txt",
    )
    joblens("run", *options, "--", "cp", "in.txt", "out.txt", code=0)
    start, end = events(events_file)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert (end["job"]["namespace"], end["job"]["name"]) == ("lab", "copy")
    assert [one["name"] for one in end["inputs"]] == [str(tmp_path / "in.txt")]
    (output,) = end["outputs"]
    assert (output["namespace"], output["name"]) == ("file", str(tmp_path / "out.txt"))
    assert output["outputFacets"]["outputStatistics"]["size"] == 4
    usage = end["run"]["facets"]["joblens_resourceUsage"]
    assert usage["requested"] == {"memoryBytes": 64 << 20}
    assert usage["usage"]["cpu_total_usec"] >= 0


def test_a_failure_has_its_message_and_the_end_of_its_output(joblens: RunJoblens, events_file: Path) -> None:
    joblens("run", "--", "sh", "-c", "echo no such mesh >&2; exit 3", code=3)
    end = events(events_file)[-1]
    assert end["eventType"] == "FAIL"
    facet = end["run"]["facets"]["errorMessage"]
    assert "exit code 3" in facet["message"]
    assert "no such mesh" in facet["stackTrace"]


def test_code_in_a_repository_has_its_location(
    joblens: RunJoblens, events_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(folder)]
    for line in (
        "init -q -b main",
        "remote add origin https://git.example.org/a.git",
        "commit -q --allow-empty -m a",
    ):
        subprocess.run([*git, *line.split()], check=True)
    joblens("run", "--", "true", cwd=folder, code=0)
    location = events(events_file)[-1]["job"]["facets"]["sourceCodeLocation"]
    assert (location["repoUrl"], location["branch"]) == ("https://git.example.org/a.git", "main")
    assert len(location["version"]) == 40


WORKFLOW = """
name: flow
description: two steps
jobs:
  - name: bad
    command: sh -c 'exit 5'
  - name: good
    command: "true"
"""


def test_jobs_of_a_workflow_have_its_run_as_parent(
    joblens: RunJoblens, events_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "flow.yaml").write_text(WORKFLOW)
    joblens("run", "flow.yaml", code=1)
    found = events(events_file)
    run_events = [one for one in found if one["job"]["name"] == "flow"]
    assert [one["eventType"] for one in run_events] == ["START", "FAIL"]
    assert run_events[0]["job"]["facets"]["documentation"]["description"] == "two steps"
    jobs = [one for one in found if one not in run_events]
    assert {one["job"]["name"] for one in jobs} == {"flow.bad", "flow.good"}
    assert {one["eventType"] for one in jobs} == {"START", "COMPLETE", "FAIL"}
    for event in jobs:
        parent = event["run"]["facets"]["parent"]
        assert parent["run"]["runId"] == run_events[0]["run"]["runId"]
        assert parent["job"] == {"namespace": "lab", "name": "flow"}


def test_a_cancelled_job_is_an_abort(joblens: RunJoblens, events_file: Path) -> None:
    uuid = joblens("submit", "--", "sleep", "60", code=0).stdout.strip()
    joblens("cancel", uuid, code=0)
    joblens("wait", uuid)
    assert events(events_file)[-1]["eventType"] == "ABORT"


@contextlib.contextmanager
def collecting(status: int) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """An HTTP server: yields its URL, and (Authorization, event) of each request."""
    got: list[tuple[str, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.headers.get("Authorization", ""), json.loads(body)))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_parts: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/api/v1/lineage", got
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_events_are_posted_with_the_key(joblens: RunJoblens) -> None:
    with collecting(201) as (url, got):
        joblens("run", "--", "true", env={"JOBLENS_LINEAGE_URL": url, "OPENLINEAGE_API_KEY": "k1"}, code=0)
    assert [(key, event["eventType"]) for key, event in got] == [
        ("Bearer k1", "START"),
        ("Bearer k1", "COMPLETE"),
    ]


def test_a_receiver_that_refuses_is_warned_of_once_and_the_file_has_all_events(
    joblens: RunJoblens, events_file: Path
) -> None:
    with collecting(500) as (url, _):
        done = joblens("run", "--", "sh", "-c", "exit 4", env={"JOBLENS_LINEAGE_URL": url}, code=4)
    assert done.stderr.count("OpenLineage:") == 1
    assert [one["eventType"] for one in events(events_file)] == ["START", "FAIL"]


def test_a_receiver_that_is_down_is_named(joblens: RunJoblens) -> None:
    host = f"127.0.0.1:{free_port()}"
    done = joblens("run", "--", "true", env={"JOBLENS_LINEAGE_URL": f"http://{host}/api?key=secret"}, code=0)
    assert f"OpenLineage: {host}: Connection refused;" in done.stderr
    assert "secret" not in done.stderr


def test_a_url_with_a_password_is_refused_without_showing_it(joblens: RunJoblens) -> None:
    url = "http://ann:secret@127.0.0.1/api"
    done = joblens("run", "--", "true", env={"JOBLENS_LINEAGE_URL": url}, code=2)
    assert "OPENLINEAGE_API_KEY" in done.stderr
    assert "secret" not in done.stderr


def test_a_url_that_is_none_is_refused(joblens: RunJoblens) -> None:
    done = joblens("run", "--", "true", env={"JOBLENS_LINEAGE_URL": "file:///etc/passwd"}, code=2)
    assert "lineage.url" in done.stderr
