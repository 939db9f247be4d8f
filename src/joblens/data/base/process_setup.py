"""Process set-up for recipe workers: cheap import of numpy and Arrow, and malloc settings."""

import contextlib
import ctypes
import functools
import gc
import os
from collections.abc import Iterator

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def import_arrow() -> None:
    with imports_without_blas_threads():
        import pyarrow.compute  # noqa: F401 - numpy comes with it


@contextlib.contextmanager
def imports_without_blas_threads() -> Iterator[None]:
    """Imports numpy without BLAS threads: workers already run in parallel, and the threads would busy-wait
    for work. An explicit setting in the environment wins. Pauses garbage collection, which speeds up
    imports."""
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


_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 4 << 20
_KEPT_BYTES = 8 << 20


@functools.cache
def return_large_blocks() -> bool:
    """Makes glibc return freed columns to the system and keep small blocks. Otherwise the first freed column
    raises glibc's threshold for all later ones. Returns False for another C library."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(set_option(_M_MMAP_THRESHOLD, _LARGE_BYTES)) and bool(
        set_option(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    )
