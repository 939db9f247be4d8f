"""Jobs whose owner died are brought to their end by whichever command comes next."""

from joblens.model.job import Record
from joblens.model.settings import Settings
from joblens.ports.store import Store


def recover_dead_owners(store: Store, settings: Settings, config: str | None = None) -> None:
    """Settles what nobody waits for any more, and has the supervisor adopt what still runs under a living
    launcher. Cheap when nothing is under way: one indexed read."""
    if not store.running():
        return
    from joblens.agent.accounting import Accountant
    from joblens.agent.recovery import Recovery
    from joblens.app.drivers import SystemClock, store_path
    from joblens.app.places import spool_dir
    from joblens.probes.host import read_host

    clock = SystemClock()
    accountant = Accountant(clock, settings.limits.cgroup_parent)
    recovery = Recovery(spool_dir(store_path(settings)), accountant, clock, read_host())
    adoptable, dead = recovery.orphans(store)
    for record in dead:
        uuid = record.job.uuid
        store.apply(recovery.settle(record, store.samples(uuid)))
        recovery.forget(uuid)
    if dead:
        _mirror([store.find(record.job.uuid) for record in dead], settings)
    if adoptable:
        from joblens.app.submitting import wake_supervisor

        wake_supervisor(settings, config)


def _mirror(records: list[Record], settings: Settings) -> None:
    """The plain files get what their owner could not write any more."""
    from joblens.app.drivers import open_sinks

    for sink in open_sinks(settings):
        sink.jobs_ended(records)
        sink.close()
