"""gRPC: jobs, samples, output and changes, asked by a generated client."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("grpc")
pytest.importorskip("grpc_tools")

from google.protobuf import descriptor_pb2
from msgspec.structs import fields

from joblens.app.server.changes import SubmitRequest
from joblens.app.server.jobs import JobList, JobSummary
from joblens.model.access import AuditQuery, Role
from joblens.model.history import SortKey
from joblens.model.jobs.job import Finding, Requirements, Severity, Status, Usage
from joblens.model.jobs.sample import DeviceIo, GpuReading, InterfaceIo, Sample
from joblens.web.rpc import proto_text
from joblens.web.rpc.schema import Schema, parse_proto
from tests.builders.writes import ended, queued, sample, samples, started, whole_job
from tests.integration.grpc_client import Code, Connect, connecting, generated, problem, refused, running_job
from tests.integration.requeued import begin_again, requeued_job
from tests.integration.served import Served


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path, options={"grpc": "0"}) as one:
        yield one


@pytest.fixture
def connect(server: Served) -> Iterator[Connect]:
    with connecting(server) as function:
        yield function


# ---- the file


def test_the_server_reads_its_proto_file_as_the_compiler_does() -> None:
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(generated().descriptors).file
    for message in file.message_type:
        for field in (field for each in (message, *message.nested_type) for field in each.field):
            field.ClearField("json_name")  # derived from the name
    assert parse_proto(proto_text()) == file


@pytest.mark.parametrize(
    "text", ["message A {", "message A { int64 }", "import x;", "service S { option x; }", "enum E ["]
)
def test_a_proto_file_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"'|early"):
        parse_proto(text)


def test_every_field_of_joblens_is_in_the_proto_file() -> None:
    schema = Schema(proto_text())
    same: dict[str, type] = {
        "Sample": Sample,
        "DeviceIo": DeviceIo,
        "GpuReading": GpuReading,
        "InterfaceIo": InterfaceIo,
        "Usage": Usage,
        "Requirements": Requirements,
        "Finding": Finding,
        "JobSummary": JobSummary,
        "ListJobsRequest": JobList,
    }
    for name, kind in same.items():
        assert {each.name for each in schema.message(name).DESCRIPTOR.fields} == {
            each.name for each in fields(kind)
        }, name
    submit = {each.name for each in schema.message("SubmitJobRequest").DESCRIPTOR.fields}
    renamed = {"params_json": "params", "idempotency_key": None}
    assert {renamed.get(each, each) for each in submit} - {None} == {
        each.name for each in fields(SubmitRequest)
    }
    for enum, members in (("Status", Status), ("Severity", Severity), ("SortKey", SortKey)):
        values = schema.pool.FindEnumTypeByName(f"joblens.v1.{enum}").values
        prefix = values[0].name.removesuffix("UNSPECIFIED")
        assert [each.name.removeprefix(prefix).lower() for each in values[1:]] == [
            each.value for each in members
        ]


# ---- reading


def test_jobs_are_listed_with_filters_in_pages(server: Served, connect: Connect) -> None:
    for number in range(5):
        server.apply(*whole_job(name=f"n{number}", tags=("t",)))
    server.apply(*whole_job(name="bad", status=Status.FAILED))
    client = connect()
    pb = client.pb
    found, cursor = [], None
    while True:
        page = client.list(tag=["t"], limit=2, sort=pb.SORT_KEY_NAME, ascending=True, cursor=cursor)
        found += [each.name for each in page.items]
        if not page.HasField("next"):
            break
        cursor = page.next
    assert found == ["n0", "n1", "n2", "n3", "n4"]
    (bad,) = client.list(status=[pb.STATUS_FAILED]).items
    assert (bad.name, bad.status, bad.cpu_s) == ("bad", pb.STATUS_FAILED, 0.5)
    assert not bad.HasField("exit_code")  # unknown is not 0


def test_one_job_is_found_by_number_uuid_and_prefix(server: Served, connect: Connect) -> None:
    made = queued(name="work", params={"x": [1, 2**60]}, external_id="mine")
    uuid = made.job.uuid
    server.apply(made, started(uuid), ended(uuid, Status.FAILED, exit_code=3, stderr_bytes=0))
    client = connect()
    whole = client.get(uuid)
    assert [client.get(each) for each in (uuid[:18], str(whole.summary.number), "mine")] == [whole] * 3
    assert (whole.summary.name, whole.summary.exit_code, list(whole.argv)) == ("work", 3, ["true"])
    assert whole.params_json == '{"x":[1,1152921504606846976]}'
    assert whole.usage.cpu_total_usec == 500_000
    assert not whole.usage.HasField("io_read_bytes")
    assert (whole.HasField("stderr_bytes"), whole.HasField("stdout_bytes")) == (True, False)


def test_metrics_come_from_the_first_sample_then_live_until_the_end(server: Served, connect: Connect) -> None:
    uuid = running_job(server, 700)  # more than the server keeps in memory
    stream = connect().metrics(uuid)
    found: list[int] = []
    for each in stream:
        found.append(each.index)
        assert (each.sample.elapsed_us, each.reset) == (each.index * 1_000_000, "")
        if len(found) == 700:
            server.apply(samples(uuid, 700, 5))
        if len(found) == 705:
            server.apply(samples(uuid, 705, 1), ended(uuid))
    assert found == list(range(706))
    assert dict(stream.trailing_metadata()) == {"joblens-end": "job-ended", "joblens-status": "success"}


def test_a_sample_has_every_number_and_nothing_that_is_unknown(server: Served, connect: Connect) -> None:
    uuid = running_job(server, 8)
    server.apply(ended(uuid))
    for got in connect().metrics(uuid[:13]):
        made = sample(got.index)
        assert got.sample.HasField("processes") == (made.processes is not None)
        assert not got.sample.HasField("memory_current_bytes")
        assert got.sample.cpu_total_usec == made.cpu_total_usec
        assert got.sample.devices["8:0"].read_bytes == got.index * 4096
        assert {name: each.power_mw for name, each in got.sample.gpus.items()} == {
            name: each.power_mw for name, each in (made.gpus or {}).items()
        }


def test_a_client_that_comes_back_gets_the_rest_once(server: Served, connect: Connect) -> None:
    uuid = running_job(server, 20)
    client = connect()
    stream = client.metrics(uuid)
    first = [next(stream).index for _ in range(8)]
    stream.cancel()
    server.apply(samples(uuid, 20, 5), ended(uuid))
    assert first + [each.index for each in client.metrics(uuid, after=first[-1])] == list(range(25))
    unknown = list(client.metrics(uuid, after=1000))
    assert (unknown[0].reset, unknown[0].HasField("sample")) == ("unknown-position", False)
    assert [each.index for each in unknown[1:]] == list(range(25))


def test_output_is_followed_ranged_and_tailed(server: Served, connect: Connect, tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_bytes(b"one\ntwo\n\xff\xfe\n")
    uuid = running_job(server, logs_dir=str(tmp_path))
    client = connect()
    assert b"".join(each.data for each in client.logs(uuid)) == log.read_bytes()
    assert b"".join(each.data for each in client.logs(uuid, after=-1)) == log.read_bytes()
    assert b"".join(each.data for each in client.logs(uuid, tail=2)) == b"two\n\xff\xfe\n"
    assert b"".join(each.data for each in client.logs(uuid, after=4)) == b"two\n\xff\xfe\n"
    unknown = client.logs(uuid, follow=True, after=1000)
    assert [next(unknown).reset, next(unknown).data] == ["unknown-position", log.read_bytes()]
    unknown.cancel()
    stream = client.logs(uuid, follow=True, after=4)
    chunk = next(stream)
    assert (chunk.data, chunk.position) == (b"two\n\xff\xfe\n", 11)
    with log.open("ab") as file:
        file.write(b"three")
    server.apply(ended(uuid, stdout_bytes=16))
    assert b"".join(each.data for each in stream) == b"three"
    assert refused(lambda: client.logs(uuid, stream="../../etc/passwd")).code() == Code.INVALID_ARGUMENT
    assert refused(lambda: client.logs(uuid, tail=1, after=1)).code() == Code.INVALID_ARGUMENT


def test_a_client_that_was_away_while_its_job_began_again_gets_a_reset(
    server: Served, connect: Connect, tmp_path: Path
) -> None:
    uuid = requeued_job(server, tmp_path)
    client = connect()
    stream, output = client.metrics(uuid), client.logs(uuid, follow=True)
    first, chunk = [next(stream) for _ in range(5)][-1], next(output)
    assert (first.attempt, first.index, chunk.attempt, chunk.position) == (1, 4, 1, 20)
    stream.cancel()
    output.cancel()
    begin_again(server, tmp_path, uuid, is_ended=True)
    void, *rest = client.metrics(uuid, after=4, attempt=1)
    assert void.reset == "job-queued-again"
    assert [(each.attempt, each.index) for each in rest] == [(2, index) for index in range(8)]
    for follow in (False, True):
        void, part = client.logs(uuid, follow=follow, after=20, attempt=1)
        assert (void.reset, part.data, part.attempt) == ("job-queued-again", b"new\n" * 8, 2)
        (rest_of_it,) = client.logs(uuid, follow=follow, after=28, attempt=2)
        assert rest_of_it.data == b"new\n"
    assert [each.index for each in client.metrics(uuid, after=5)] == [6, 7]


@pytest.mark.parametrize("follow", [False, True])
def test_output_on_another_machine_is_the_stored_tail(server: Served, connect: Connect, follow: bool) -> None:
    uuid = running_job(server, logs_dir="/no/such/folder")
    server.apply(ended(uuid, stdout_tail="the end"))
    (chunk,) = connect().logs(uuid, follow=follow)
    assert (chunk.data, chunk.is_stored_tail, chunk.node) == (b"the end", True, "host")


# ---- changes


def test_a_command_is_submitted_measured_followed_and_cancelled(
    server: Served, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    client = connect(Role.OPERATOR)
    pb = client.pb
    asked = {"shell": "echo hello; sleep 60", "name": "work", "tags": ["grpc"], "env": {"A": "b"}}
    first = client.submit(**asked, params_json='{"x": 1}', idempotency_key="k1")
    again = client.submit(**asked, params_json='{"x": 1}', idempotency_key="k1")
    uuid = first.job.summary.uuid
    assert (first.is_new, again.is_new, again.job.summary.uuid) == (True, False, uuid)
    conflict = refused(lambda: client.submit(**asked, idempotency_key="k1"))
    assert (conflict.code(), problem(conflict).code) == (Code.FAILED_PRECONDITION, "Conflict")
    assert next(client.logs(uuid, follow=True)).data == b"hello\n"
    measured = client.metrics(uuid)
    assert next(measured).sample.HasField("cpu_total_usec")
    client.cancel(uuid)
    assert all(each.HasField("sample") for each in measured)  # to the end of the job
    assert dict(measured.trailing_metadata())["joblens-status"] == "cancelled"
    assert client.get(uuid).summary.status == pb.STATUS_CANCELLED
    with server.store() as store:
        entries = store.audit_entries(AuditQuery(subject=uuid))
    assert {each.action for each in entries} == {"job-submit", "job-cancel"}
    assert {each.who for each in entries} == {"ana (token test)"}
