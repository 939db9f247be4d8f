"""Lists of CPUs as the kernel writes them: 0-3,8."""

from collections.abc import Iterable

from joblens.model.errors import InputError

_MOST = 1 << 16  # more than any kernel has numbers for


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """'0-3,8' -> (0, 1, 2, 3, 8). Raises InputError."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        last = last if dash else first
        if not (_is_number(first) and _is_number(last)) or max(int(first), int(last)) >= _MOST:
            raise InputError(f"CPU list '{text}': '{part.strip()}' is not a CPU", hint="write it as 0-3,8")
        if int(first) > int(last):
            raise InputError(f"CPU list '{text}': '{part.strip()}' runs backwards", hint=f"{last}-{first}")
        cpus.update(range(int(first), int(last) + 1))
    return tuple(sorted(cpus))


def format_cpu_list(cpus: Iterable[int]) -> str:
    """{0, 1, 2, 8} -> '0-2,8'"""
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 7
