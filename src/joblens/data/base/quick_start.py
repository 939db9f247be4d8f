"""Numpy and Arrow imported at the least cost, for processes that are ours alone."""

import contextlib
import gc
import os
from collections.abc import Iterator

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def import_arrow() -> None:
    with quickly():
        import pyarrow.compute  # noqa: F401 - numpy comes with it


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """While numpy is imported. Workers go side by side already: threads for linear algebra would only take
    their CPUs from them, and begin with waiting busily for work. What the environment says counts, and
    programs that are started later find it as it was. Imports make no garbage worth looking for."""
    is_ours = _BLAS_THREADS not in os.environ
    was_on = gc.isenabled()
    gc.disable()
    if is_ours:
        os.environ[_BLAS_THREADS] = "1"
    try:
        yield
    finally:
        if is_ours:
            del os.environ[_BLAS_THREADS]
        if was_on:
            gc.enable()
