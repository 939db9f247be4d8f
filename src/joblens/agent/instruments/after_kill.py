"""What is known beside its groups of a job whose owner was killed, and with it what that one knew."""

from collections.abc import Mapping

from joblens.agent.instruments.missing import MissingProbe, missing, not_asked_for
from joblens.agent.instruments.network import network_counted
from joblens.model.jobs.job import Job
from joblens.model.jobs.probe_choice import INSTRUMENTS
from joblens.ports.probe import Probe

_KILLED = "joblens was killed while it looked at the job, and nobody went on"


def left_instruments(job: Job, groups: Mapping[str, str]) -> tuple[Probe, ...]:
    """The kernel has gone on counting packets; of the others there is only the reason."""
    if not job.monitor:
        return ()
    left: list[Probe] = []
    for name, instrument in INSTRUMENTS.items():
        if not instrument.groups:
            continue
        is_wanted = job.probes is None or name in job.probes
        if is_wanted and name == "network":
            left.append(network_counted(groups))
            continue
        stand_in = missing(name, _KILLED) if is_wanted else not_asked_for(name)
        assert isinstance(stand_in, MissingProbe)
        left.append(stand_in)
    return tuple(left)
