"""BenchmarkRunner: runs a tool's own script several times and measures it; compares and reports results."""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

import joblens
from joblens.analysis.comparing.bench import (
    FORMAT,
    TOOL,
    Document,
    are_of_one_machine,
    compared_documents,
    metrics_form,
    parameter_changes,
    run_form,
    variants_of,
)
from joblens.app.bench.files import default_results_dir, find, load_all, new_id, save
from joblens.app.jobs.api import Result, SequentialRunner
from joblens.app.jobs.preparation import prepare
from joblens.app.queue.tool_requests import placed, request_of
from joblens.app.queue.tools import find_tool, tool_request
from joblens.app.reports.exports import output_file
from joblens.app.wiring.drivers import Warn, warn_in_python
from joblens.app.wiring.machine import DEVICES, disturbances, missing_device, system_info
from joblens.app.wiring.settings import load_settings
from joblens.model.errors import BenchmarkError
from joblens.model.history import BENCH_TAG
from joblens.model.settings import Settings
from joblens.model.tool import Tool
from joblens.model.values.units import format_instant
from joblens.views.bench.report import html_report, markdown_report

_HTML, _MARKDOWN = (".html", ".htm"), (".md", ".markdown")


def report_text(documents: Sequence[Mapping[str, Any]], title: str, *, compares: bool = False) -> str:
    return markdown_report(documents, title, compares=compares)[0]


def check_report_path(path: str) -> None:
    """Checks it before anything runs. Raises BenchmarkError; creates no folder, because the name may be
    mistyped."""
    if os.path.splitext(path)[1].lower() not in (*_HTML, *_MARKDOWN):
        raise BenchmarkError(f"{path}: a report is an .html or .md file")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise BenchmarkError(f"{path}: the report cannot be written: there is no directory {folder}")


def write_report(
    documents: Sequence[Mapping[str, Any]], title: str, path: str, *, compares: bool = False
) -> str:
    """Returns the report as Markdown, whatever was written."""
    check_report_path(path)
    text, pictures = markdown_report(documents, title, compares=compares)
    if os.path.splitext(path)[1].lower() in _HTML:
        files = {path: html_report(documents, title, compares=compares)}
    else:
        folder = os.path.dirname(path)
        files = {**{os.path.join(folder, name): svg for name, svg in pictures.items()}, path: text}
    for name, content in files.items():
        with output_file(name) as file:
            file.write(content.encode(errors="backslashreplace"))
    return text


_MOST_RUNS = 100_000

Report = Callable[[int, Result], None]  # (run, 0 while warming up; its result)


class BenchmarkRunner:
    """Results are dicts as in docs/benchmarking.md. Nothing is written before `save_results`; the jobs
    themselves are in the store like any other."""

    def __init__(
        self, results_dir: "str | os.PathLike[str] | None" = None, *, settings: Settings | None = None
    ) -> None:
        self._settings = settings or load_settings().settings
        directory = os.fspath(results_dir) if results_dir is not None else None
        self.results_dir = os.path.abspath(directory or default_results_dir(self._settings))

    def run_benchmark(
        self,
        tool: str,
        device: str = "cpu",
        custom_params: Mapping[str, Any] | None = None,
        runs: int = 3,
        *,
        script: str | None = None,
        warmup: int = 1,
        container: str | None = None,
        tell: Report | None = None,
    ) -> Document:
        """Runs the benchmark script of the tool, or `script`, each time in an empty folder. Failed runs
        are part of the result; bad input raises InputError before anything runs."""
        _check_count("runs", runs, least=1)
        _check_count("warmup", warmup, least=0)
        found = find_tool(tool)
        check_device(device)
        script_path = script or found.benchmark
        if not script_path:
            raise BenchmarkError(f"{tool} has no benchmark script", hint="give --script FILE, or script=…")
        planned = tool_request(found, script_path, custom_params, device=device, container=container)
        system, created_time = system_info(), format_instant(time.time_ns() // 1000)
        measured: list[Document] = []
        job = None
        with SequentialRunner(self._settings) as jobs:
            for number in range(1 - warmup, runs + 1):
                with tempfile.TemporaryDirectory(prefix="joblens-bench-") as folder:
                    request = replace(request_of(placed(planned, folder)), tags=(BENCH_TAG,))
                    result = jobs.run(prepare(request, self._settings))
                job = result.record.job
                if tell is not None:
                    tell(max(0, number), result)
                if number >= 1:
                    form = run_form(result.record, number)
                    measured.append({**form, "detailed_profile": result.profile})
        return {
            "format": FORMAT,
            "kind": TOOL,
            "id": new_id(f"{tool}-{device}", created_time),
            "title": f"{tool} {os.path.basename(script_path)} on {device}",
            "created_time": created_time,
            "joblens_version": joblens.__version__,
            "tool": tool,
            "script": script_path,
            "device": device,
            "params": job.params if job else {},
            "command": list(job.argv) if job else [],
            "container": container or (found.container.image if found.container else None),
            "system_info": system,
            "disturbances": disturbances(system),
            "warmup": warmup,
            "runs": measured,
            "metrics": metrics_form(measured),
            "error": _common_error(measured),
        }

    def save_results(self, results: Mapping[str, Any], filename: "str | None" = None) -> str:
        """Returns the path. Without a name the file is named after the result's id, in `results_dir`."""
        _check_result(results)
        if filename is not None and not filename.endswith(".json"):
            raise BenchmarkError(f"{filename}: results are JSON files", hint=f"name it {filename}.json")
        return save(results, self.results_dir, filename or "")

    def load_results(self, name: str | None = None, *, warn: Warn = warn_in_python) -> Any:
        """Returns one result by its id, a unique part of it, its path, or 'latest'. Without a name,
        returns all of them, oldest first; a warning names unreadable files."""
        if name is not None:
            return find(self.results_dir, self._path_of(name))
        documents, problems = load_all(self.results_dir)
        for problem in problems:
            warn(problem)
        return documents

    def _path_of(self, name: str) -> str:
        inside = os.path.join(self.results_dir, name)
        return inside if name.endswith(".json") and os.path.exists(inside) else name

    def compare_results(
        self, baseline: "Mapping[str, Any] | str", other: "Mapping[str, Any] | str"
    ) -> Document:
        """Compares `other` with `baseline`: `speedup` above 1 is faster, `time_saved_seconds` by the
        medians, `percent_change` of the time. With the interval of the speedup, or null and a `reason`."""
        one, two = self._document_of(baseline), self._document_of(other)
        if one["id"] == two["id"]:
            raise BenchmarkError(f"{one['id']} cannot be compared with itself", hint="joblens bench list")
        before, after = variants_of(one)[-1], variants_of(two)[-1]
        compared = compared_documents(one, two)
        return {
            "baseline_id": one["id"],
            "compared_id": two["id"],
            **compared,
            **_speedup(compared["numbers"]["duration_seconds"], before, after),
            "parameter_changes": parameter_changes(one, two),
            "same_machine": are_of_one_machine(one, two),
        }

    def generate_report(
        self,
        results: "Sequence[Mapping[str, Any] | str] | Mapping[str, Any] | str | None" = None,
        output: "str | os.PathLike[str] | None" = None,
        *,
        title: str = "Benchmarks",
    ) -> str:
        """Returns the text, Markdown; with `output` it is written there too: a page with embedded plots
        (.html), or Markdown (.md) with its plots in separate files. Results of a list are also compared
        with the first. Default: all results."""
        if results is None:
            documents = self.load_results()
        elif isinstance(results, str | Mapping):
            documents = [self._document_of(results)]
        else:
            documents = [self._document_of(one) for one in results]
        if not documents and results is not None:
            raise BenchmarkError("the list of results is empty", hint="pass None for all results")
        if not documents:
            raise BenchmarkError(f"no results in {self.results_dir}", hint="joblens bench run")
        compares = results is not None
        if output is None:
            return report_text(documents, title, compares=compares)
        return write_report(documents, title, os.fspath(output), compares=compares)

    def _document_of(self, result: "Mapping[str, Any] | str") -> Document:
        if isinstance(result, str):
            return dict(self.load_results(result))
        _check_result(result)
        return dict(result)


def check_device(device: str) -> None:
    if device not in DEVICES:
        raise BenchmarkError(f"device '{device}': expected {', '.join(DEVICES)}")
    missing = missing_device(device)
    if missing:
        raise BenchmarkError(
            f"device '{device}': {missing}", hint="use --device all for every available device"
        )


def usable_devices(tool: Tool) -> tuple[list[str], dict[str, str]]:
    """Returns (devices to run on, skipped devices with the reason)."""
    reasons = {}
    for device in DEVICES[1:]:
        why = "" if device in tool.devices else f"{tool.name} does not support it"
        reason = missing_device(device) or why
        if reason:
            reasons[device] = reason
    return [device for device in DEVICES if device not in reasons], reasons


def _check_count(name: str, value: Any, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST_RUNS:
        raise BenchmarkError(f"{name} {value!r}: expected a number, {least} to {_MOST_RUNS}")


def _check_result(results: Any) -> None:
    if not isinstance(results, Mapping) or "kind" not in results or "id" not in results:
        raise BenchmarkError("not the result of a benchmark", hint="pass what run_benchmark returned")


def _speedup(
    number: Mapping[str, Any] | None, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Document:
    if number is None:
        failed = [side["name"] for side in (before, after) if not side["metrics"]["successful_runs"]]
        why = f"no run of {' and of '.join(failed)} succeeded" if failed else "a run took no time at all"
        keys = ("speedup", "speedup_low", "speedup_high", "time_saved_seconds", "percent_change", "differs")
        return {**dict.fromkeys(keys), "reason": why}
    return {
        "speedup": 1 / number["ratio"],
        "speedup_low": None if number["high"] is None else 1 / number["high"],
        "speedup_high": None if number["low"] is None else 1 / number["low"],
        "time_saved_seconds": before["metrics"]["median_duration"] - after["metrics"]["median_duration"],
        "percent_change": 100 * (number["ratio"] - 1),
        "differs": number["differs"],
        "reason": None,
    }


def _common_error(runs: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns why there is no result."""
    if any(run["success"] for run in runs):
        return None
    return next((run["error"] for run in runs if run["error"]), f"every run ended as {runs[-1]['status']}")
