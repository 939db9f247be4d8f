"""`srun_termination_signal` of a workflow: the signal that jobs get before their time is up."""

import re
import signal

from joblens.model.errors import PlanError
from joblens.model.runs.workflow_spec import ExecutionSpec

_USUAL_LEAD_S = 60.0  # as srun has it
_WRITTEN = re.compile(r"^(?:[BR]+:)?(?:SIG)?([A-Z][A-Z0-9]*)(?:@([0-9]+))?$")


def srun_signal(execution: ExecutionSpec) -> tuple[int, float] | None:
    """'TERM@120' -> its number, and how long before. Raises PlanError."""
    text = execution.srun_termination_signal
    if not text:
        return None
    match = _WRITTEN.match(text.strip())
    known = signal.Signals.__members__.get(f"SIG{match[1]}") if match is not None else None
    if match is None or known is None:
        raise PlanError(
            f"execution_config: srun_termination_signal: '{text}' cannot be read", hint="write it as TERM@120"
        )
    return int(known), float(match[2] or _USUAL_LEAD_S)
