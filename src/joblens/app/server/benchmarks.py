"""Benchmarks whose results are next to the store: list, and the history of one."""

import os
from typing import Annotated

from msgspec import Meta, Struct

from joblens.analysis.comparing.bench import Document
from joblens.analysis.comparing.bench_history import (
    BenchHistory,
    BenchSummary,
    history_of,
    name_of,
    summaries_of,
)
from joblens.app.bench.files import default_results_dir, load_all
from joblens.app.server.access import Principal
from joblens.app.server.jobs import Word
from joblens.model.errors import UnknownBenchmark
from joblens.model.settings import Settings

_MOST_RESULTS = 200


class BenchPage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    after: Annotated[int, Meta(ge=0, le=2**31)] = 0


class BenchName(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Word  # as the list has it


class Benchmarks(Struct, frozen=True, kw_only=True):
    items: tuple[BenchSummary, ...]
    problems: tuple[str, ...]  # files that cannot be read
    folder: str
    next: int | None = None


def list_benchmarks(caller: Principal, settings: Settings, query: BenchPage) -> Benchmarks:
    documents, problems, folder = _documents(caller, settings)
    rows = summaries_of(documents)
    items = tuple(rows[query.after : query.after + query.limit])
    end = query.after + len(items)
    return Benchmarks(
        items=items, problems=tuple(problems), folder=folder, next=end if end < len(rows) else None
    )


def get_benchmark(caller: Principal, settings: Settings, name: str) -> BenchHistory:
    """Returns the newest results. Raises UnknownBenchmark for a name without results."""
    documents, _, folder = _documents(caller, settings)
    found = [each for each in documents if name_of(each) == name]
    if not found:
        raise UnknownBenchmark(
            f"no benchmark '{name[:80]}' has results in {folder}", hint="joblens bench list shows all results"
        )
    return history_of(name, found[-_MOST_RESULTS:])


def _documents(caller: Principal, settings: Settings) -> tuple[list[Document], list[str], str]:
    caller.require_all("benchmarks")
    folder = default_results_dir(settings)
    if not os.path.isdir(folder):
        return [], [], folder
    documents, problems = load_all(folder)
    return documents, problems, folder
