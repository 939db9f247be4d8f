"""Which environment variables tell what a program does, and not only which session it was started from."""

from joblens.model.redaction.names import is_allowed_env

_OF_A_SESSION = frozenset(
    {"PWD", "OLDPWD", "TERM", "COLUMNS", "LINES", "DISPLAY", "EDITOR", "HOSTNAME", "SHELL", "LOGNAME"}
)
_OF_A_JOB = ("JOBLENS_", "TORC_", "SLURM_", "PBS_", "LSB_", "PMIX_", "XDG_", "RAY_", "CELERY_")


def is_lasting_env(name: str) -> bool:
    """Jobs that differ in no such variable share what is remembered of their surroundings."""
    return is_allowed_env(name) and name not in _OF_A_SESSION and not name.startswith(_OF_A_JOB)
