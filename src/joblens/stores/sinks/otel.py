"""OpenTelemetry sink: spans of runs and jobs, and metrics, over OTLP/HTTP. Needs the extra `otel`.

Runs behind a QueuedSink. The SDK's processors have queues and threads of their own; OTEL_* variables apply to
them.
"""

import logging
import os
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from joblens import __version__
from joblens.analysis.formats.spans import RESULTS, RUN_RESULTS, SpanValue, span_of_job, span_of_run
from joblens.model.errors import MissingExtra, how_to_install
from joblens.model.jobs.details import CodeVersion, Details, GpuFacts, Provenance
from joblens.model.jobs.job import Record, is_of_workflow
from joblens.model.jobs.sample import Sample
from joblens.model.jobs.trace import TRACE_VARIABLE, parse_traceparent
from joblens.model.runs.run import Run, RunStatus, Workflow
from joblens.model.settings import OtelSettings
from joblens.stores.sinks import SelectiveSink

try:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ImportError as error:
    raise MissingExtra(
        f"otel.enabled needs the extra 'otel' ({error})", hint=how_to_install("otel")
    ) from error

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
_SCOPE = InstrumentationScope("joblens", __version__, _SCHEMA)
_USEC = 1e6
_MOST_CODES = 1000


class OtelSink(SelectiveSink):
    def __init__(self, settings: OtelSettings, warn: Callable[[str], None]) -> None:
        self._settings = settings
        logging.getLogger("opentelemetry").addHandler(_Failures(_receiver(settings), warn))
        self._dashboard = settings.dashboard_url or ""
        self._caller = parse_traceparent(os.environ.get(TRACE_VARIABLE))
        self._codes: dict[str, CodeVersion | None] = {}
        is_off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        self._resource = Resource.create(_own_attributes(), _SCHEMA)
        self._spans: BatchSpanProcessor | None = None
        self._metrics: _Metrics | None = None
        if not is_off and os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "none":
            self._spans = BatchSpanProcessor(OTLPSpanExporter(endpoint=_endpoint(settings, "traces")))
        if not is_off and settings.metrics and os.environ.get("OTEL_METRICS_EXPORTER", "otlp") != "none":
            self._metrics = _Metrics(
                OTLPMetricExporter(endpoint=_endpoint(settings, "metrics")), self._resource
            )

    def job_started(self, record: Record) -> None:
        if self._metrics is not None:
            self._metrics.job_started(record)

    def samples_taken(self, uuid: str, samples: Sequence[Sample]) -> None:
        if self._metrics is not None and samples:
            self._metrics.sampled(uuid, samples)

    def details_taken(self, uuid: str, details: Details) -> None:
        if self._metrics is not None and details.gpus is not None:
            self._metrics.gpus_known(uuid, details.gpus)

    def provenance_seen(self, digest: str, provenance: Provenance) -> None:
        if len(self._codes) < _MOST_CODES:
            self._codes[digest] = provenance.code

    def jobs_ended(self, records: Sequence[Record]) -> None:
        for record in records:
            digest = record.attempt.provenance if record.attempt is not None else ""
            self._export(span_of_job(record, self._codes.get(digest), self._dashboard))
            if self._metrics is not None:
                self._metrics.job_ended(record)

    def run_changed(self, workflow: Workflow, run: Run) -> None:
        if run.is_command:
            return  # its one job stands for it
        if self._metrics is not None:
            self._metrics.run_changed(workflow, run)
        if run.status in RUN_RESULTS:
            self._export(span_of_run(workflow, run, self._caller, time.time_ns() // 1000, self._dashboard))

    def close(self) -> None:
        flush_ms = max(1, int(self._settings.flush * 1000))
        if self._spans is not None:
            self._spans.force_flush(flush_ms)
            self._spans.shutdown()  # type: ignore[no-untyped-call]
        if self._metrics is not None:
            self._metrics.close(flush_ms)

    def _export(self, value: SpanValue) -> None:
        if self._spans is not None and value.context.own.is_sampled:
            self._spans.on_end(_span(value, self._resource))


class _Failures(logging.Handler):
    """Gets the SDK's messages, so that they do not reach standard error, and reports them as warnings."""

    def __init__(self, receiver: str, warn: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._where = f"{receiver}: " if receiver else ""
        self._report = warn

    def emit(self, record: logging.LogRecord) -> None:
        given = record.args if isinstance(record.args, tuple) else ()
        errors = [one for one in given if isinstance(one, BaseException)]
        text = _innermost(errors[0]) if errors else record.getMessage()
        self._report(f"{self._where}{text}; events may be missing there")


def _receiver(settings: OtelSettings) -> str:
    """Its host and port; the rest of a URL may have a key. '': not known here."""
    url = settings.endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    return urllib.parse.urlsplit(url).netloc.rpartition("@")[2]


def _innermost(error: BaseException) -> str:
    """Libraries wrap the reason of the operating system several times."""
    text = str(error)
    seen: BaseException | None = error
    while seen is not None:
        text = getattr(seen, "strerror", None) or text
        seen = seen.__cause__ or seen.__context__
    return text


def _own_attributes() -> dict[str, Any]:
    return {"service.name": "joblens", "service.version": __version__, "host.name": os.uname().nodename}


def _endpoint(settings: OtelSettings, signal: str) -> str | None:
    """None: as OTEL_EXPORTER_OTLP_* say, or the default."""
    return f"{settings.endpoint.rstrip('/')}/v1/{signal}" if settings.endpoint else None


def _span(value: SpanValue, resource: Resource) -> ReadableSpan:
    own = value.context.own
    trace_id = int(own.trace_id, 16)
    flags = TraceFlags(TraceFlags.SAMPLED)
    parent = None
    if value.context.parent_span_id:
        above = int(value.context.parent_span_id, 16)
        parent = SpanContext(trace_id, above, is_remote=True, trace_flags=flags)
    return ReadableSpan(
        name=value.name,
        context=SpanContext(trace_id, int(own.span_id, 16), is_remote=False, trace_flags=flags),
        parent=parent,
        resource=resource,
        attributes=value.attributes,
        events=[Event(name, attributes, value.end_us * 1000) for name, attributes in value.events],
        kind=SpanKind.SERVER if value.is_run else SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, value.error) if value.error is not None else Status(StatusCode.UNSET),
        start_time=value.start_us * 1000,
        end_time=value.end_us * 1000,
        instrumentation_scope=_SCOPE,
    )


class _Running:
    """A running job: its last sample, and the last with readings of GPUs."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.sample: Sample | None = None
        self.gpu_sample: Sample | None = None
        self.gpus: tuple[GpuFacts, ...] = ()


class _Metrics:
    """cicd.* of runs; container.* and hw.gpu.* of the jobs that run now, read by the SDK's thread."""

    def __init__(self, exporter: OTLPMetricExporter, resource: Resource) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, _Running] = {}
        self._provider = MeterProvider([PeriodicExportingMetricReader(exporter)], resource)
        meter = self._provider.get_meter("joblens", __version__, _SCHEMA)
        self._duration = meter.create_histogram(
            "cicd.pipeline.run.duration", "s", "Duration of a pipeline run."
        )
        self._active = meter.create_up_down_counter(
            "cicd.pipeline.run.active", "{run}", "Active pipeline runs."
        )
        self._errors = meter.create_counter("cicd.pipeline.run.errors", "{error}", "Errors of pipeline runs.")
        self._observe(meter)

    def job_started(self, record: Record) -> None:
        with self._lock:
            is_new = record.job.uuid not in self._jobs
            self._jobs.setdefault(record.job.uuid, _Running(record))
        if is_new and not is_of_workflow(record.job):
            self._active.add(1, _active(record.job.name))

    def sampled(self, uuid: str, samples: Sequence[Sample]) -> None:
        with self._lock:
            job = self._jobs.get(uuid)
            if job is not None:
                job.sample = samples[-1]
                job.gpu_sample = next((one for one in reversed(samples) if one.gpus), job.gpu_sample)

    def gpus_known(self, uuid: str, gpus: tuple[GpuFacts, ...]) -> None:
        with self._lock:
            if (job := self._jobs.get(uuid)) is not None:
                job.gpus = gpus

    def job_ended(self, record: Record) -> None:
        with self._lock:
            was_running = self._jobs.pop(record.job.uuid, None) is not None
        assert record.outcome is not None
        if is_of_workflow(record.job):
            return
        if was_running:
            self._active.add(-1, _active(record.job.name))
        error = record.outcome.reason or str(record.status) if record.status.is_failure else ""
        self._ended(record.job.name, RESULTS.get(record.status, "error"), record.outcome.duration_s, error)

    def run_changed(self, workflow: Workflow, run: Run) -> None:
        if run.status is RunStatus.RUNNING:
            self._active.add(1, _active(workflow.name))
        elif run.status in RUN_RESULTS:
            self._active.add(-1, _active(workflow.name))
            lasted_us = (run.ended_at_us or 0) - (run.started_at_us or run.created_at_us)
            error = str(run.status) if run.status is RunStatus.FAILED else ""
            self._ended(workflow.name, RUN_RESULTS[run.status], max(0, lasted_us) / _USEC, error)

    def _ended(self, name: str, result: str, duration_s: float, error: str) -> None:
        attributes = {
            "cicd.pipeline.name": name,
            "cicd.pipeline.run.state": "executing",
            "cicd.pipeline.result": result,
        }
        if error:
            attributes["error.type"] = error
            self._errors.add(1, {"cicd.pipeline.name": name, "error.type": error})
        self._duration.record(duration_s, attributes)

    def close(self, flush_ms: int) -> None:
        self._provider.force_flush(flush_ms)
        self._provider.shutdown(flush_ms)

    def _observe(self, meter: "Meter") -> None:
        counter, gauge = meter.create_observable_counter, meter.create_observable_up_down_counter
        counter("container.cpu.time", [self._cpu], "s", "CPU time of a running job.")
        gauge("container.memory.usage", [self._memory], "By", "Memory charged to a running job.")
        counter("container.disk.io", [self._disk], "By", "Disk bytes of a running job.")
        counter("container.network.io", [self._network], "By", "Network bytes of a running job.")
        meter.create_observable_gauge("container.uptime", [self._uptime], "s", "Time a job has been running.")
        meter.create_observable_gauge(
            "hw.gpu.utilization", [self._gpu_use], "1", "Share of time a GPU is busy."
        )
        gauge("hw.gpu.memory.usage", [self._gpu_memory], "By", "GPU memory in use.")
        gauge("hw.gpu.memory.limit", [self._gpu_limit], "By", "GPU memory.")

    def _sampled(self) -> list[tuple[dict[str, Any], Sample]]:
        with self._lock:
            return [
                (_container(job.record), job.sample) for job in self._jobs.values() if job.sample is not None
            ]

    def _split(self, key: str, parts: dict[str, str]) -> Iterable[Observation]:
        """`parts`: value of the attribute -> field of the sample."""
        for attributes, sample in self._sampled():
            for part, field in parts.items():
                value = getattr(sample, field)
                if value is not None:
                    scaled = value / _USEC if field.endswith("_usec") else value
                    yield Observation(scaled, {**attributes, key: part})

    def _cpu(self, _options: CallbackOptions) -> Iterable[Observation]:
        return self._split("cpu.mode", {"user": "cpu_user_usec", "system": "cpu_system_usec"})

    def _disk(self, _options: CallbackOptions) -> Iterable[Observation]:
        return self._split("disk.io.direction", {"read": "io_read_bytes", "write": "io_write_bytes"})

    def _network(self, _options: CallbackOptions) -> Iterable[Observation]:
        parts = {"receive": "network_rx_bytes", "transmit": "network_tx_bytes"}
        return self._split("network.io.direction", parts)

    def _memory(self, _options: CallbackOptions) -> Iterable[Observation]:
        for attributes, sample in self._sampled():
            if sample.memory_current_bytes is not None:
                yield Observation(sample.memory_current_bytes, attributes)

    def _uptime(self, _options: CallbackOptions) -> Iterable[Observation]:
        return (Observation(sample.elapsed_us / _USEC, attributes) for attributes, sample in self._sampled())

    def _devices(self, field: str, divisor: float = 1) -> Iterable[Observation]:
        with self._lock:
            jobs = [
                (job, job.gpu_sample.gpus or {}) for job in self._jobs.values() if job.gpu_sample is not None
            ]
        for job, readings in jobs:
            names = {facts.id: facts for facts in job.gpus}
            for device, reading in readings.items():
                value = getattr(reading, field)
                if value is not None:
                    yield Observation(value / divisor, _gpu(job.record, device, names.get(device)))

    def _gpu_use(self, _options: CallbackOptions) -> Iterable[Observation]:
        return self._devices("utilization", 10_000)

    def _gpu_memory(self, _options: CallbackOptions) -> Iterable[Observation]:
        return self._devices("memory_used_bytes")

    def _gpu_limit(self, _options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            known = [(job.record, facts) for job in self._jobs.values() for facts in job.gpus]
        for record, facts in known:
            if facts.memory_total_bytes is not None:
                yield Observation(facts.memory_total_bytes, _gpu(record, facts.id, facts))


def _active(name: str) -> dict[str, str]:
    return {"cicd.pipeline.name": name, "cicd.pipeline.run.state": "executing"}


def _container(record: Record) -> dict[str, Any]:
    return {"container.id": record.job.uuid, "container.name": record.job.name}


def _gpu(record: Record, device: str, facts: GpuFacts | None) -> dict[str, Any]:
    known = {} if facts is None else {"hw.name": facts.name, "hw.vendor": facts.vendor}
    return {"hw.id": device, **known, **_container(record)}
