"""A client that grpcio-tools generates from the shipped joblens.proto."""

import contextlib
import functools
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from joblens.model.access import Role, Scope
from joblens.web.rpc import proto_text
from tests.builders.writes import queued, samples, started
from tests.integration.served import Served

Code = grpc.StatusCode
TIMEOUT_S = 20
METHODS = {
    "ListJobs": "ListJobsRequest",
    "GetJob": "GetJobRequest",
    "StreamJobMetrics": "JobMetricsRequest",
    "StreamJobLogs": "JobLogsRequest",
    "SubmitJob": "SubmitJobRequest",
    "CancelJob": "CancelJobRequest",
}


@functools.cache
def generated() -> Any:
    """Returns the compiler's modules as one: messages, the stub, and `descriptors`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "joblens.proto").write_text(proto_text(), encoding="utf-8")
        outputs = [f"--{kind}={folder}" for kind in ("python_out", "grpc_python_out")]
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", *outputs]
        command += [f"--descriptor_set_out={folder}/set", "joblens.proto"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        sys.path.insert(0, str(folder))
        try:
            messages: Any = importlib.import_module("joblens_pb2")
            messages.JobServiceStub = importlib.import_module("joblens_pb2_grpc").JobServiceStub
        finally:
            sys.path.remove(str(folder))
        messages.descriptors = (folder / "set").read_bytes()
        return messages


class Client:
    """A generated stub with a token for every call."""

    def __init__(self, channel: Any, token: str = "") -> None:
        self.pb = generated()
        self.channel = channel
        self.stub = self.pb.JobServiceStub(channel)
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()

    def call(self, method: str, request: Any) -> Any:
        return getattr(self.stub, method)(request, metadata=self.metadata, timeout=TIMEOUT_S)

    def list(self, **fields: Any) -> Any:
        return self.call("ListJobs", self.pb.ListJobsRequest(**fields))

    def get(self, uuid: str) -> Any:
        return self.call("GetJob", self.pb.GetJobRequest(uuid=uuid))

    def metrics(self, uuid: str, **fields: Any) -> Any:
        return self.call("StreamJobMetrics", self.pb.JobMetricsRequest(uuid=uuid, **fields))

    def logs(self, uuid: str, **fields: Any) -> Any:
        return self.call("StreamJobLogs", self.pb.JobLogsRequest(uuid=uuid, **fields))

    def submit(self, **fields: Any) -> Any:
        return self.call("SubmitJob", self.pb.SubmitJobRequest(**fields))

    def cancel(self, uuid: str) -> Any:
        return self.call("CancelJob", self.pb.CancelJobRequest(uuid=uuid))


Connect = Callable[..., Client]


@contextlib.contextmanager
def connecting(server: Served) -> Iterator[Connect]:
    """Yields a function: role and scope, or a token, to a client."""
    with contextlib.ExitStack() as stack:

        def connect(role: Role = Role.READER, scope: Scope = Scope.ALL, token: str | None = None) -> Client:
            secret = server.token(role, scope) if token is None else token
            return Client(stack.enter_context(grpc.insecure_channel(server.started.grpc)), secret)

        yield connect


def refused(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Returns the error of a call that fails, also of a stream."""
    with pytest.raises(grpc.RpcError) as caught:
        _finish(call(*arguments, **options))
    return caught.value


def _finish(result: Any) -> None:
    if hasattr(result, "__next__"):
        list(result)


def problem(error: Any) -> Any:
    """Returns the message that a failed call has in its trailing metadata."""
    return generated().Problem.FromString(dict(error.trailing_metadata())["joblens-problem-bin"])


def running_job(server: Served, count: int = 0, **attempt: Any) -> str:
    made = queued()
    server.apply(made, started(made.job.uuid, **attempt))
    if count:
        server.apply(samples(made.job.uuid, 0, count))
    return made.job.uuid
