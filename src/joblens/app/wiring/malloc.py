"""Memory that is free, given back to the system."""

import contextlib

_MMAP_THRESHOLD = -3  # of mallopt
_LARGE = 128 * 1024


def give_back_freed_memory() -> None:
    """Also what is freed from now on. By itself the C library keeps ever larger blocks for itself, the more
    of them it has seen; where it is another one, nothing happens."""
    import ctypes

    library = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):
        library.mallopt(_MMAP_THRESHOLD, _LARGE)
        library.malloc_trim(0)
