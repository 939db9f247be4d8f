"""Recipes: throughput compared with DataJuicer, memory, cost of events and checkpoints, snapshot latency."""

import hashlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench.commands import JOBLENS, Workbench
from bench.datajuicer import DataJuicer
from bench.documents import write_documents
from bench.event_logs import write_long_event_log
from bench.goals import Figure
from bench.process_memory import peak_bytes

DOCUMENTS = 100_000
REPEATS = 5
EVENTS = 1_000_000

Process = list[dict[str, dict[str, Any]]]
SIX: Process = [
    {"clean_links_mapper": {}},
    {"clean_email_mapper": {}},
    {"whitespace_normalization_mapper": {}},
    {"text_length_filter": {"min_len": 100}},
    {"words_num_filter": {"min_num": 20}},
    {"alphanumeric_filter": {"min_ratio": 0.6}},
]
EXACT: Process = [{"document_deduplicator": {}}]
MORE: Process = [
    {"fix_unicode_mapper": {}},
    {"special_characters_filter": {}},
    {"character_repetition_filter": {}},
    {"word_repetition_filter": {}},
]
MINHASH: Process = [{"document_minhash_deduplicator": {}}]


def figures(bench: Workbench, datajuicer_home: Path) -> Iterator[Figure]:
    other = DataJuicer.installed(datajuicer_home)
    data = bench.path("documents.jsonl")
    write_documents(data, DOCUMENTS)
    _warm_up(bench, other)
    for what, process, goal in (
        ("6 operators", SIX, 30),
        ("7 operators, the last an exact deduplication", SIX + EXACT, 30),
        ("11 operators", SIX + MORE + EXACT, 10),
        ("MinHash deduplication", MINHASH, 5),
    ):
        yield _against(bench, other, data, what, process, goal)
    yield _small(bench, other)
    yield _recording(bench, data)
    yield _memory(bench, data)
    yield from _snapshots(bench, other)


def _warm_up(bench: Workbench, other: DataJuicer) -> None:
    """DataJuicer installs packages during a first run, which must not be measured."""
    data = bench.path("warm.jsonl")
    write_documents(data, 300)
    for process in (SIX + MORE + EXACT, MINHASH):
        folder = _folder(bench, "warm")
        other.process(_recipe(folder, data, process), folder)


def _against(
    bench: Workbench, other: DataJuicer, data: str, what: str, process: Process, goal: float
) -> Figure:
    """The whole commands, both from a cold start, two processes each; ours with every event and a checkpoint
    behind every operator, the other's default executor with neither, which is its fastest way."""
    theirs = _folder(bench, "theirs")
    recipe = _recipe(theirs, data, process)
    their_s = other.process(recipe, theirs)
    ours = [_process(bench, data, process) for _ in range(REPEATS)]
    rows = _fingerprint(f"{theirs}/out.jsonl")
    same = all(_fingerprint(f"{folder}/out.jsonl") == rows for _, folder in ours)
    our_s = median(seconds for seconds, _ in ours)
    note = f"{DOCUMENTS / our_s:,.0f} rows/s against {DOCUMENTS / their_s:,.0f}; {rows[0]:,} rows out"
    if not same:  # faster at something else is no figure
        return Figure(f"{what}: rows/s of DataJuicer's", 0.0, "x", goal, at_least=True, note="OTHER ROWS OUT")
    return Figure(f"{what}: rows/s of DataJuicer's", their_s / our_s, "x", goal, at_least=True, note=note)


def _small(bench: Workbench, other: DataJuicer) -> Figure:
    data = bench.path("few.jsonl")
    write_documents(data, 300)
    theirs = _folder(bench, "theirs-small")
    their_s = other.process(_recipe(theirs, data, SIX), theirs)
    our_s = median(_process(bench, data, SIX)[0] for _ in range(REPEATS))
    return Figure("300 documents, the whole command", our_s, "s", 2.0, note=f"DataJuicer {their_s:.1f} s")


def _recording(bench: Workbench, data: str) -> Figure:
    """Alternates both, so that a busy moment affects both."""
    bare_keys = {"checkpoint": {"enabled": False}, "event_logging": {"enabled": False}}
    bare, full = [], []
    for _ in range(REPEATS):
        bare.append(_process(bench, data, SIX + EXACT, **bare_keys)[0])
        full.append(_process(bench, data, SIX + EXACT)[0])
    cost = (median(full) / median(bare) - 1) * 100
    note = f"{median(full):.2f} s against {median(bare):.2f} s without"
    return Figure("events and a checkpoint behind every operator, of the wall time", cost, "%", 15, note=note)


def _memory(bench: Workbench, data: str) -> Figure:
    large = bench.path("documents-10.jsonl")
    with Path(large).open("wb") as out:
        for number in range(10):  # other documents each time: a deduplication keeps them
            piece = bench.path("piece.jsonl")
            write_documents(piece, DOCUMENTS, seed=100 + number)
            out.write(Path(piece).read_bytes())
    small_peak = median(_peak_bytes(bench, data) for _ in range(3))
    large_peak = _peak_bytes(bench, large)
    note = f"{large_peak / 2**20:.0f} MiB against {small_peak / 2**20:.0f}, all processes together"
    return Figure("peak memory on 10 times the data", large_peak / small_peak, "x", 1.3, note=note)


def _snapshots(bench: Workbench, other: DataJuicer) -> Iterator[Figure]:
    job = _folder(bench, "20261115_120000_abcdef")
    write_long_event_log(job, EVENTS)
    their_s, _ = other.snapshot(job, bench.folder)
    times, peaks = [], []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([*JOBLENS, "snapshot", job], env=bench.env, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
        report = bench.path("snapshot-report.json")
        command = [*JOBLENS, "run", "--report", report, "--", *JOBLENS, "snapshot", job]
        subprocess.run(command, env=bench.env, check=True, stdout=subprocess.DEVNULL)
        peaks.append(json.loads(Path(report).read_text())["resource_usage"]["memory_peak_mb"])
    what = f"snapshot of {EVENTS:,} events"
    note = f"{median(times):.1f} s against {their_s:.1f} s"
    yield Figure(
        f"{what}, against DataJuicer's tool", their_s / median(times), "x", 10, at_least=True, note=note
    )
    yield Figure(f"{what}, peak memory", median(peaks), "MiB", 200)


def _process(bench: Workbench, data: str, process: Process, **keys: Any) -> tuple[float, str]:
    """-> seconds of the whole command, the folder it worked in."""
    folder = _folder(bench, "ours")
    recipe = _recipe(folder, data, process, **{"checkpoint": {"strategy": "every_op"}, **keys})
    start = time.perf_counter()
    subprocess.run([*JOBLENS, "process", recipe], env=bench.env, check=True, capture_output=True)
    return time.perf_counter() - start, folder


def _peak_bytes(bench: Workbench, data: str) -> float:
    folder = _folder(bench, "peak")
    recipe = _recipe(folder, data, SIX + EXACT, checkpoint={"strategy": "every_op"})
    return peak_bytes([*JOBLENS, "process", "--quiet", recipe], bench.env)


def _recipe(folder: str, data: str, process: Process, **keys: Any) -> str:
    recipe = {
        "project_name": "bench",
        "dataset_path": data,
        "export_path": f"{folder}/out.jsonl",
        "work_dir": folder,
        "np": 2,
        **keys,
        "process": process,
    }
    path = Path(folder, "recipe.yaml")
    path.write_text(json.dumps(recipe), encoding="utf-8")  # JSON is YAML
    return str(path)


def _folder(bench: Workbench, name: str) -> str:
    number = sum(1 for _ in Path(bench.folder).glob(f"{name}*"))
    folder = Path(bench.path(f"{name}-{number}" if number else name))
    folder.mkdir()
    return str(folder)


def _fingerprint(path: str) -> tuple[int, str]:
    """Returns rows, and a digest of their content; the spelling of JSON does not matter."""
    digest, count = hashlib.sha256(), 0
    with Path(path).open("rb") as rows:
        for line in rows:
            digest.update(json.dumps(json.loads(line), sort_keys=True).encode())
            count += 1
    return count, digest.hexdigest()
