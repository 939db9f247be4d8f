"""How the C library keeps what Python and numpy have freed."""

import ctypes
import functools

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 4 << 20
_KEPT_BYTES = 8 << 20


@functools.cache
def return_large_blocks() -> bool:
    """Columns go back to the system when they are freed, and small things stay at hand. Left to itself glibc
    takes the first column that is freed as a sign to keep all later ones. False: another C library."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(set_option(_M_MMAP_THRESHOLD, _LARGE_BYTES)) and bool(
        set_option(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    )
