"""Pi as the integral of 4 / (1 + x * x) from 0 to 1, computed by the ranks of an MPI job.

The error of the midpoint rule is 1 / (12 * intervals**2), so the result can be checked. Parameters are
options: --intervals N. Writes result.json.
"""

import argparse
import json
import math
import time

import numpy
from mpi4py import MPI

BATCH = 1 << 16  # intervals per chunk, so that memory does not grow with them


def share(rank, ranks, intervals):
    """Returns this rank's part of the sum."""
    first, last = rank * intervals // ranks, (rank + 1) * intervals // ranks
    total = 0.0
    for start in range(first, last, BATCH):
        x = (numpy.arange(start, min(start + BATCH, last)) + 0.5) / intervals
        total += float(numpy.sum(4.0 / (1.0 + x * x)))
    return total / intervals


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--intervals", type=int, default=10_000_000)
    intervals = parser.parse_args().intervals
    world = MPI.COMM_WORLD
    began = time.perf_counter()
    pi = world.allreduce(share(world.rank, world.size, intervals), op=MPI.SUM)
    if world.rank == 0:
        error = abs(pi - math.pi)
        result = {
            "ranks": world.size,
            "intervals": intervals,
            "pi": pi,
            "error": error,
            "seconds": round(time.perf_counter() - began, 3),
        }
        with open("result.json", "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
        print(f"ranks={world.size} intervals={intervals} pi={pi:.12f} error={error:.3e}")
    # Rounding limits the accuracy to about 1e-12.
    return 0 if abs(pi - math.pi) < 1 / (11 * intervals**2) + 1e-11 else 1


if __name__ == "__main__":
    raise SystemExit(main())
