"""Examples of rows that each operator changed or dropped."""

import os
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from joblens.data.base.job_folder import JobFolder
from joblens.data.rows.batch import LINE, Change, Row, decoded_rows
from joblens.data.rows.partition import PartitionState
from joblens.files.atomic import write_atomically
from joblens.files.private import make_private_folder
from joblens.model.recipes.recipe import OperatorCall, Recipe


class Tracer:
    """Collects examples from one partition, as many per operator as the whole job shows. The first ones over
    all partitions are merged at the end."""

    def __init__(self, folder: JobFolder, partition_id: int, recipe: Recipe) -> None:
        self.is_on = recipe.trace
        self._rows = recipe.trace_rows
        self._operators = recipe.trace_operators
        self._keys = recipe.trace_keys
        self._folder = folder
        self._id = partition_id

    def mapped(self, call: OperatorCall, before: Any, state: PartitionState, changed: dict[str, Any]) -> None:
        """Keeps one example per changed field. `before`: the whole rows before the operator."""
        if not self._is_wanted(call):
            return
        is_changed = np.logical_or.reduce([np.zeros(len(state.ids), dtype=bool), *changed.values()])
        indexes = np.flatnonzero(is_changed)[: self._rows]
        old, new = _rows_of(before.take(pa.array(indexes))), _rows_of(state.rows_at(indexes))
        examples = [
            {
                "partition": self._id,
                "row": int(row),
                **self._key_values(one),
                "field": name,
                "before": one.get(name),
                "after": other.get(name),
            }
            for row, one, other in zip(state.ids[indexes], old, new, strict=True)
            for name in Change(one, other).fields()
        ]
        self._write(call, examples)

    def filtered(self, call: OperatorCall, state: PartitionState, keep: Any, stats: dict[str, Any]) -> None:
        if not self._is_wanted(call):
            return
        dropped = ~keep if state.alive is None else ~keep & state.alive
        indexes = np.flatnonzero(dropped)[: self._rows]
        examples = [
            {
                "partition": self._id,
                "row": int(state.ids[index]),
                **self._key_values(row),
                "stats": {name: values[int(index)].as_py() for name, values in stats.items()},
                "dropped": row,
            }
            for index, row in zip(indexes, _rows_of(state.rows_at(indexes)), strict=True)
        ]
        self._write(call, examples)

    def _is_wanted(self, call: OperatorCall) -> bool:
        return self.is_on and (not self._operators or call.name in self._operators)

    def _key_values(self, row: Row) -> dict[str, Any]:
        return {"keys": {key: row.get(key) for key in self._keys}} if self._keys else {}

    def _write(self, call: OperatorCall, examples: list[dict[str, Any]]) -> None:
        folder = self._folder.trace_parts(call.index, call.name)
        make_private_folder(folder)
        lines = b"".join(msgspec.json.encode(example) + b"\n" for example in examples[: self._rows])
        write_atomically(os.path.join(folder, f"partition_{self._id:06d}.jsonl"), lines)


def _rows_of(batch: Any) -> list[Row]:
    """Returns all fields of each row; for lines that cannot be parsed, those that operators see."""
    try:
        return decoded_rows(batch, None)
    except (ValueError, RecursionError):
        return decoded_rows(batch.drop_columns([LINE]), None)


def put_traces_together(folder: JobFolder, recipe: Recipe) -> None:
    """Merges the first examples of each operator, in dataset order."""
    make_private_folder(folder.trace)
    for call in recipe.process:
        parts = folder.trace_parts(call.index, call.name)
        if not os.path.isdir(parts):
            continue
        lines: list[bytes] = []
        for name in sorted(os.listdir(parts)):
            with open(os.path.join(parts, name), "rb") as file:
                lines += file.readlines()
            if len(lines) >= recipe.trace_rows:
                break
        write_atomically(folder.trace_of(call.index, call.name), b"".join(lines[: recipe.trace_rows]))
