"""Traces and metrics reach a real OTLP receiver; a receiver that fails changes nothing for the job."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunJoblens, wait_until

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from tests.otlp_receiver import Receiver, attributes_of, receiving

SERVER, INTERNAL, ERROR = 2, 1, 2
CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as one:
        monkeypatch.setenv("JOBLENS_OTEL_ENABLED", "true")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", one.url)
        monkeypatch.delenv("TRACEPARENT", raising=False)
        yield one


def test_a_command_is_one_server_span_with_its_usage(joblens: RunJoblens, receiver: Receiver) -> None:
    joblens("run", "--name", "hello", "--memory", "64m", "--tag", "team=a", "--", "true", code=0)
    (span,) = receiver.spans
    attributes = attributes_of(span.attributes)
    assert (span.name, span.kind, span.status.code) == ("RUN hello", SERVER, 0)
    assert attributes["cicd.pipeline.name"] == "hello"
    assert attributes["cicd.pipeline.result"] == "success"
    assert attributes["joblens.request.memory"] == 64 << 20
    assert attributes["joblens.job.tags"] == ["team=a"]
    assert attributes["joblens.cpu.time"] >= 0
    assert span.end_time_unix_nano > span.start_time_unix_nano
    uuid = attributes["cicd.pipeline.run.id"]
    assert span.trace_id.hex() == uuid.replace("-", "")
    assert receiver.resources[0]["service.name"] == "joblens"


def test_a_failure_is_an_error_with_its_reason(joblens: RunJoblens, receiver: Receiver) -> None:
    joblens("run", "--", "sh", "-c", "exit 3", code=3)
    (span,) = receiver.spans
    attributes = attributes_of(span.attributes)
    assert (span.status.code, attributes["cicd.pipeline.result"]) == (ERROR, "failure")
    assert (attributes["error.type"], attributes["process.exit.code"]) == ("exited", 3)
    assert "exit code 3" in span.status.message
    assert [event.name for event in span.events] == ["joblens.finding.exit-code"]


def test_a_time_out_has_its_own_result(joblens: RunJoblens, receiver: Receiver) -> None:
    joblens("run", "--timeout", "200ms", "--grace", "0s", "--", "sleep", "60", code=124)
    assert attributes_of(receiver.spans[0].attributes)["cicd.pipeline.result"] == "timeout"


def test_the_job_and_its_caller_are_in_one_trace(joblens: RunJoblens, receiver: Receiver) -> None:
    done = joblens("run", "--", "sh", "-c", "echo $TRACEPARENT", env={"TRACEPARENT": CALLER}, code=0)
    (span,) = receiver.spans
    assert span.trace_id.hex() == CALLER.split("-")[1]
    assert span.parent_span_id.hex() == CALLER.split("-")[2]
    assert done.stdout.strip() == f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"


def test_a_caller_that_is_not_sampled_has_no_spans(joblens: RunJoblens, receiver: Receiver) -> None:
    joblens("run", "--", "true", env={"TRACEPARENT": CALLER[:-2] + "00"}, code=0)
    assert not receiver.spans


def test_the_sdk_can_be_disabled(joblens: RunJoblens, receiver: Receiver) -> None:
    joblens("run", "--", "true", env={"OTEL_SDK_DISABLED": "true"}, code=0)
    assert not receiver.requests


WORKFLOW = """
name: flow
failure_handlers:
  - name: again
    rules: [{exit_codes: [5], max_retries: 1}]
jobs:
  - name: first
    command: sh -c 'echo $TRACEPARENT > first.txt'
  - name: flaky
    command: sh -c 'test -e second || { touch second; exit 5; }'
    failure_handler: again
  - name: limited
    command: sh -c 'echo $TRACEPARENT > limited.txt'
    memory: 64m
    depends_on: [first]
"""


@pytest.mark.parametrize("caller", ["", CALLER], ids=["alone", "called"])
def test_a_run_is_one_trace_with_a_span_per_attempt(
    joblens: RunJoblens, receiver: Receiver, tmp_path: Path, caller: str
) -> None:
    (tmp_path / "flow.yaml").write_text(WORKFLOW)
    env = {
        "JOBLENS_OTEL_DASHBOARD_URL": "https://jobs.example.org/",
        **({"TRACEPARENT": caller} if caller else {}),
    }
    joblens("run", "flow.yaml", env=env, code=0)
    run = receiver.span("RUN flow")
    tasks = [span for span in receiver.spans if span is not run]
    assert sorted(span.name for span in tasks) == ["first", "flaky", "flaky", "limited"]
    assert {span.trace_id for span in tasks} == {run.trace_id}
    assert {span.parent_span_id for span in tasks} == {run.span_id}
    assert {span.kind for span in tasks} == {INTERNAL}
    assert run.kind == SERVER
    assert run.parent_span_id.hex() == (caller.split("-")[2] if caller else "")
    results = {attributes_of(span.attributes)["cicd.pipeline.task.run.result"] for span in tasks}
    assert results == {"success", "failure"}
    for name in ("first", "limited"):
        span = receiver.span(name)
        inside = (tmp_path / f"{name}.txt").read_text().strip()
        assert inside == f"00-{run.trace_id.hex()}-{span.span_id.hex()}-01"
        attributes = attributes_of(span.attributes)
        link = f"https://jobs.example.org/jobs/{attributes['cicd.pipeline.task.run.id']}"
        assert attributes["cicd.pipeline.task.run.url.full"] == link


SCRIPT = "import os; print(os.environ['TRACEPARENT'])"


@pytest.mark.parametrize("how", ["command", "tool"])
def test_jobs_in_the_background_are_traced_too(
    joblens: RunJoblens, receiver: Receiver, tmp_path: Path, how: str
) -> None:
    """By the supervisor, or by a worker of the queue."""
    (tmp_path / "trace.py").write_text(SCRIPT)
    words = ("--", sys.executable, "trace.py") if how == "command" else ("python", "trace.py")
    env = {"TRACEPARENT": CALLER, "OTEL_BSP_SCHEDULE_DELAY": "100", "JOBLENS_QUEUE_IDLE": "1s"}
    uuid = joblens("submit", *words, env=env, code=0).stdout.split()[0]
    joblens("wait", uuid, env=env, code=0)
    wait_until(lambda: receiver.spans, what="the span")
    (span,) = receiver.spans
    assert span.parent_span_id.hex() == CALLER.split("-")[2]
    printed = joblens("logs", uuid, code=0).stdout.strip()
    assert printed == f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"


def test_metrics_follow_the_conventions(joblens: RunJoblens, receiver: Receiver) -> None:
    env = {"OTEL_METRIC_EXPORT_INTERVAL": "200"}
    joblens("run", "--name", "m", "--interval", "100ms", "--", "sleep", "2.5", env=env, code=0)
    (duration,) = receiver.metrics["cicd.pipeline.run.duration"][:1]
    assert duration == {
        "unit": "s",
        "cicd.pipeline.name": "m",
        "cicd.pipeline.run.state": "executing",
        "cicd.pipeline.result": "success",
    }
    for name in (
        "container.cpu.time",
        "container.memory.usage",
        "container.uptime",
        "cicd.pipeline.run.active",
    ):
        assert receiver.metrics[name], name
    assert receiver.metrics["container.cpu.time"][0]["container.name"] == "m"
    assert {point["cpu.mode"] for point in receiver.metrics["container.cpu.time"]} == {"user", "system"}


def test_metrics_can_be_turned_off(joblens: RunJoblens, receiver: Receiver) -> None:
    joblens("run", "--", "true", env={"JOBLENS_OTEL_METRICS": "false"}, code=0)
    assert receiver.spans
    assert not receiver.metrics


def failing(receiver_url: str) -> dict[str, Any]:
    return {
        "JOBLENS_OTEL_ENABLED": "true",
        "JOBLENS_OTEL_FLUSH": "500ms",
        "JOBLENS_OTEL_ENDPOINT": receiver_url,
    }


def test_a_receiver_that_is_down_changes_nothing_for_the_job(joblens: RunJoblens) -> None:
    done = joblens("run", "--", "sh", "-c", "echo fine; exit 7", env=failing("http://127.0.0.1:9"), code=7)
    assert done.stdout == "fine\n"
    assert done.stderr == (
        "joblens: warning: OpenTelemetry: 127.0.0.1:9: Connection refused; events may be missing there\n"
    )
    assert joblens("show", "1", "--json", code=0).json["record"]["outcome"]["exit_code"] == 7


def test_an_endpoint_that_is_no_url_is_one_warning(joblens: RunJoblens) -> None:
    done = joblens("run", "--", "true", env=failing("nonsense"), code=0)
    (line,) = done.stderr.splitlines()
    assert line.startswith("joblens: warning: OpenTelemetry: Invalid URL 'nonsense/v1/")


def test_a_receiver_that_hangs_is_left_behind(joblens: RunJoblens) -> None:
    with receiving(delay_s=20.0) as slow:
        done = joblens("run", "--", "true", env=failing(slow.url), code=0, timeout=15.0)
        assert "took longer than 0.5s" in done.stderr
        slow.delay_s = 0.0
