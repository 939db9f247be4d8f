"""System calls that Python has no name for."""

import os
from functools import cache
from typing import Any


def call(number: int, *arguments: int | bytes) -> int:
    """Numbers must fit a C int; bytes go as a pointer to them, and the kernel only reads them. Raises
    OSError."""
    result = _quick_call(number, *arguments)
    if result is None or result < 0:
        # Once more, by the way that can tell why: whoever is refused pays for importing it.
        result = _telling_call(number, *arguments)
    return result


def call_writing(number: int, first: int, buffer: bytearray, size: int) -> int:
    """The kernel answers in `buffer`, too. Raises OSError."""
    import ctypes

    return _telling_call(number, first, (ctypes.c_char * len(buffer)).from_buffer(buffer), size)


def _quick_call(number: int, *arguments: int | bytes) -> int | None:
    function = _syscall_address()
    if function is None:
        return None
    import _ctypes

    result: int = _ctypes.call_function(function, (number, *arguments))
    return result


@cache
def _syscall_address() -> int | None:
    try:
        import _ctypes  # the package around it costs milliseconds of every job's start

        return _ctypes.dlsym(_ctypes.dlopen(None, 2), "syscall")  # type: ignore[arg-type]
    except (ImportError, AttributeError, OSError):
        return None


def _telling_call(number: int, *arguments: Any) -> int:
    import ctypes

    result: int = ctypes.CDLL(None, use_errno=True).syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
