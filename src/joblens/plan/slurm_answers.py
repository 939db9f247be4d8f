"""What Slurm's words mean for a place that was asked for."""

from joblens.model.placing import PlaceState
from joblens.model.slurm import ENDED_STATES, WAITING_STATES

_COMPLETED = "COMPLETED"

# It is worth asking again: the controller is away or busy, or the user has as many jobs there as allowed.
_PASSING = (
    "Unable to contact slurm controller",
    "Unable to contact",
    "did not answer",
    "Socket timed out",
    "Slurm temporarily unable",
    "temporarily unavailable",
    "Transport endpoint",
    "Zero Bytes were transmitted",
    "Connection refused",
    "connection failure",
    "Slurm backup controller",
    "Job violates accounting/QOS policy",
    "MaxSubmit",
    "Max jobs",
    "Too many",
    "cannot be started",
)

_MISTAKES = ("unrecognized option", "invalid", "requires an argument", "doesn't allow an argument")


def is_for_good(complaint: str) -> bool:
    """Whether sbatch would say the same the next time."""
    return not any(words.lower() in complaint.lower() for words in _PASSING)


def is_mistake(complaint: str) -> bool:
    """Of a trial: what was written is wrong, whatever is free or up at the moment."""
    return any(words in complaint.lower() for words in _MISTAKES)


def place_state(word: str) -> PlaceState:
    if word == _COMPLETED:
        return PlaceState.ENDED
    if word in ENDED_STATES:
        return PlaceState.GONE
    return PlaceState.WAITING if word in WAITING_STATES else PlaceState.RUNNING
