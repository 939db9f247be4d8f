"""A receiver of OTLP/HTTP that decodes what it gets with OpenTelemetry's own protocol buffers."""

import contextlib
import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def attributes_of(pairs: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        found[pair.key] = [one.string_value for one in value.values] if kind == "array_value" else value
    return found


class Receiver:
    """What has arrived. `delay_s`: before each answer."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.metrics: dict[str, list[dict[str, Any]]] = {}
        self.url = ""
        self.requests = 0

    def take(self, path: str, body: bytes) -> None:
        self.requests += 1
        if path == "/v1/traces":
            for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(attributes_of(part.resource.attributes))
                self.spans += [span for scope in part.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            for part in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (one for scope in part.scope_metrics for one in scope.metrics):
                    kind = metric.WhichOneof("data")
                    points = getattr(metric, kind).data_points
                    known = self.metrics.setdefault(metric.name, [])
                    known += [{"unit": metric.unit, **attributes_of(point.attributes)} for point in points]

    def span(self, name: str) -> Any:
        (found,) = [span for span in self.spans if span.name == name]
        return found


class _Handler(BaseHTTPRequestHandler):
    receiver: ClassVar[Receiver]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        time.sleep(self.receiver.delay_s)
        self.receiver.take(self.path, body)
        with contextlib.suppress(OSError):
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    def log_message(self, *_parts: Any) -> None:
        pass


@contextlib.contextmanager
def receiving(delay_s: float = 0.0) -> Iterator[Receiver]:
    receiver = Receiver(delay_s)
    handler = type("Handler", (_Handler,), {"receiver": receiver})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
