"""ADDRESS WARM_UP JOBS: runs `true` in tasks of Ray, and prints how long JOBS of them took."""

import logging
import subprocess
import sys
from time import perf_counter

import ray


@ray.remote(num_cpus=1)
def job() -> int:
    return subprocess.run(["true"], check=False).returncode


def run(count: int) -> float:
    start = perf_counter()
    assert not any(ray.get([job.remote() for _ in range(count)]))
    return perf_counter() - start


ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)
run(int(sys.argv[2]))
print(run(int(sys.argv[3])))
