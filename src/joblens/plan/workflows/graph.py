"""Which job waits for which: order, stages, cycles."""

from collections.abc import Sequence

from joblens.model.runs.plan import Plan

_MOST_CYCLES = 10


class Graph:
    """`dependents[i]`: the places of the jobs that wait for job i, ascending."""

    def __init__(self, plan: Plan) -> None:
        self.depends_on: list[tuple[int, ...]] = [job.depends_on for job in plan.jobs]
        self.dependents: list[tuple[int, ...]] = dependents_of(self.depends_on)
        self._order: list[int] | None = None

    def order(self) -> list[int]:
        """Every job after all it depends on; within that, as the file has them. Stage by stage."""
        if self._order is None:
            self._order, _ = _levels(self.depends_on, self.dependents)
        return self._order

    def stages(self) -> list[list[int]]:
        """Jobs that could run side by side if there were room: stage n needs something of stage n-1."""
        order, starts = _levels(self.depends_on, self.dependents)
        ends = [*starts[1:], len(order)]
        return [order[start:end] for start, end in zip(starts, ends, strict=True) if end > start]

    def needed_by(self, places: Sequence[int]) -> set[int]:
        """The jobs themselves and everything they need, directly or not."""
        return _reached(places, self.depends_on)

    def behind(self, places: Sequence[int]) -> set[int]:
        """The jobs themselves and everything that needs them, directly or not."""
        return _reached(places, self.dependents)


def dependents_of(depends_on: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    gathered: list[list[int] | None] = [None] * len(depends_on)
    for place, earlier in enumerate(depends_on):
        for one in earlier:
            waiting = gathered[one]
            if waiting is None:
                gathered[one] = [place]
            else:
                waiting.append(place)
    # Jobs of a stage are often waited for by the same ones: they share one tuple.
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    result: list[tuple[int, ...]] = []
    for waiting in gathered:
        each = tuple(waiting) if waiting else ()
        result.append(shared.setdefault(each, each))
    return result


def depths_behind(added: Sequence[tuple[int, ...]], first: int, depths: Sequence[int]) -> list[int]:
    """The stage of each added job: behind all it depends on. `first`: the place of the first one; `depths`:
    the stages of the jobs before."""
    found = [1 + max((depths[one] for one in earlier if one < first), default=-1) for earlier in added]
    inside = [tuple(one - first for one in earlier if one >= first) for earlier in added]
    order, _ = _levels(inside, dependents_of(inside))
    for place in order:
        found[place] = max([found[place], *(1 + found[one] for one in inside[place])])
    return found


def find_cycles(depends_on: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Each a ring: every job depends on the next, the last on the first. No two share a job."""
    dependents = dependents_of(depends_on)
    order, _ = _levels(depends_on, dependents)
    if len(order) == len(depends_on):
        return []
    left = set(range(len(depends_on))) - set(order)
    cycles: list[list[int]] = []
    while left and len(cycles) < _MOST_CYCLES:
        cycle = _ring(left, depends_on)
        if not cycle:
            break
        cycles.append(cycle)
        left -= set(cycle)
    return cycles


def _ring(left: set[int], depends_on: Sequence[tuple[int, ...]]) -> list[int]:
    """Walks from job to job until one comes again; jobs that lead nowhere are taken out of `left`."""
    while left:
        path, seen = [min(left)], {min(left): 0}
        while True:
            onward = next((one for one in depends_on[path[-1]] if one in left), None)
            if onward is None:
                left.discard(path[-1])
                break
            if onward in seen:
                ring = path[seen[onward] :]
                first = ring.index(min(ring))
                return ring[first:] + ring[:first]
            seen[onward] = len(path)
            path.append(onward)
    return []


def _levels(
    depends_on: Sequence[tuple[int, ...]], dependents: Sequence[tuple[int, ...]]
) -> tuple[list[int], list[int]]:
    """Jobs in an order they could run in, and where in it each stage begins. Those in or behind a cycle are
    not in it."""
    waits_for = [len(earlier) for earlier in depends_on]
    order = [place for place, count in enumerate(waits_for) if count == 0]
    starts, position = [0], 0
    while position < len(order):
        stage_end = len(order)
        ready = []
        for place in order[position:stage_end]:
            for later in dependents[place]:
                waits_for[later] -= 1
                if waits_for[later] == 0:
                    ready.append(later)
        position = stage_end
        if ready:
            ready.sort()
            starts.append(position)
            order += ready
    return order, starts


def _reached(places: Sequence[int], onward: Sequence[tuple[int, ...]]) -> set[int]:
    found, waiting = set(places), list(places)
    while waiting:
        for one in onward[waiting.pop()]:
            if one not in found:
                found.add(one)
                waiting.append(one)
    return found
