"""Numpy and Arrow imported by processes that are ours."""

import os
import subprocess
import sys

THREADS = "OPENBLAS_NUM_THREADS"
PROGRAM = """
import gc, os
from joblens.data.base.process_setup import import_arrow
import_arrow()
import sys
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"), gc.isenabled())
print("numpy" in sys.modules, "pyarrow.compute" in sys.modules)
"""


def threads_of(given: str | None) -> int:
    env = {name: value for name, value in os.environ.items() if name != THREADS}
    if given is not None:
        env[THREADS] = given
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, check=True, capture_output=True, text=True
    )
    threads, value, collects, *imported = done.stdout.split()
    assert (value, collects, imported) == (str(given), "True", ["True", "True"])
    return int(threads)


def test_there_are_no_threads_for_linear_algebra_unless_wished_and_the_environment_is_as_it_was() -> None:
    assert threads_of(None) == threads_of("1")
