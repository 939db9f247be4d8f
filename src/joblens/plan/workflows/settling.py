"""A plan moved to memory of its own.

Reading a file takes several times the memory its plan needs. What stays is strewn among what goes, and memory
with holes in it is not given back: so a large plan is packed, everything that was read for it is let go, and
it is unpacked again into whole blocks."""

import pickle
from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec import Struct, structs

from joblens.model.runs.plan import Plan, PlannedFile, PlannedJob

S = TypeVar("S", bound=Struct)

# Below this many jobs the holes are small.
WORTH_PACKING = 2_000


class PackedPlan(Struct, frozen=True):
    """Field by field: values that jobs share are there once, and are shared again afterwards."""

    rest: Plan
    jobs: tuple[bytes, ...]
    files: tuple[bytes, ...]


def pack_plan(plan: Plan) -> PackedPlan:
    return PackedPlan(
        structs.replace(plan, jobs=(), files=()),
        _columns(PlannedJob, plan.jobs),
        _columns(PlannedFile, plan.files),
    )


def unpack_plan(packed: PackedPlan) -> Plan:
    jobs, files = _rows(PlannedJob, packed.jobs), _rows(PlannedFile, packed.files)
    return structs.replace(packed.rest, jobs=jobs, files=files)


def _columns(kind: type[S], rows: Sequence[S]) -> tuple[bytes, ...]:
    # not msgpack: it has no integers of any size, no halves of character pairs, and nothing is shared in it
    fields = kind.__struct_fields__ if rows else ()
    return tuple(pickle.dumps([getattr(row, field) for row in rows], protocol=5) for field in fields)


def _rows(kind: type[S], columns: tuple[bytes, ...]) -> tuple[S, ...]:
    fields = kind.__struct_fields__
    values: list[list[Any]] = [pickle.loads(column) for column in columns]  # noqa: S301 - packed above
    return tuple(kind(**dict(zip(fields, row, strict=True))) for row in zip(*values, strict=True))
