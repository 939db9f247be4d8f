"""Labels, which route jobs to workers.

A job with a label runs only on a worker with that label, a job without one only on a worker without one.

The ticket of a labelled job has its own name in the store and at the broker, the *route*: queue and label
together. So one index finds what a worker may claim, and messages wake the right workers.
"""

from collections.abc import Iterable

_USUAL_QUEUE = "default"  # of the setting queue.name
_MARK = ":"  # between queue and label; not allowed in names of queues
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_LONGEST = 80  # as part of the name of a file or key


def label_problem(label: str) -> str:
    """Returns why a label is invalid; '' if it is valid."""
    if not label:
        return "is empty"
    if label != label.strip():
        return "begins or ends with whitespace"
    if not label.isprintable():
        return "has characters that cannot be printed"
    if len(_escaped(label)) > _LONGEST:
        return (
            f"is too long: at most {_LONGEST} letters and digits; other characters count three times or more"
        )
    return ""


def route_of(queue: str, label: str) -> str:
    """Returns the name under which tickets of this queue and label wait."""
    return f"{queue}{_MARK}{_escaped(label)}" if label else queue


def routes_of(queues: Iterable[str], labels: Iterable[str]) -> tuple[str, ...]:
    """Returns the routes of a worker; with labels, only those of its labels."""
    chosen = tuple(labels)
    if not chosen:
        return tuple(dict.fromkeys(queues))
    return tuple(dict.fromkeys(route_of(queue, label) for queue in queues for label in chosen))


def queue_and_label(route: str) -> tuple[str, str]:
    queue, mark, label = route.rpartition(_MARK)
    return (queue, _unescaped(label)) if mark and label and queue else (route, "")


def unserved_words(route: str, waiting: int = 0) -> str:
    """Returns a message that ends with the command that starts a worker for the route."""
    queue, label = queue_and_label(route)
    where = "" if queue == _USUAL_QUEUE else f" --queues {queue}"
    quoted = label if all(ord(one) in _PLAIN for one in label) else "'" + label.replace("'", "'\\''") + "'"
    jobs = {0: "", 1: ", and 1 job waits for it"}.get(waiting, f", and {waiting} jobs wait for it")
    return (
        f"no worker with the label '{label}' serves the queue {queue}{jobs}: "
        f"start one with joblens worker --label {quoted}{where}"
    )


def _escaped(label: str) -> str:
    """Returns the label with only characters that are valid in names of files and keys."""
    return "".join(chr(one) if one in _PLAIN else f"%{one:02X}" for one in label.encode())


def _unescaped(text: str) -> str:
    first, *others = text.encode("ascii", "replace").split(b"%")
    return b"".join([first, *(_unescaped_piece(one) for one in others)]).decode("utf-8", "replace")


def _unescaped_piece(piece: bytes) -> bytes:
    try:
        return bytes([int(piece[:2], 16)]) + piece[2:]
    except ValueError:
        return b"%" + piece
