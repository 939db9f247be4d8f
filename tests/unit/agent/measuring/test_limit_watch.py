from joblens.agent.measuring.meter import CALM_S, CLOSE_S, LimitWatch
from joblens.engine.life.job_life import EndCause
from joblens.model.jobs.sample import Sample

MIB = 1 << 20


def seen(memory_mib: int, threads: int = 1) -> Sample:
    return Sample(at_us=0, elapsed_us=0, memory_anon_bytes=memory_mib * MIB, threads=threads)


def test_more_memory_than_the_limit_ends_it() -> None:
    watch = LimitWatch(memory_bytes=100 * MIB)
    assert watch.judge(seen(100)) is None
    assert watch.judge(seen(101)) is EndCause.MEMORY_LIMIT


def test_more_processes_than_the_limit_end_it() -> None:
    assert LimitWatch(pids=4).judge(seen(1, threads=5)) is EndCause.PIDS_LIMIT


def test_what_has_no_limit_is_not_watched() -> None:
    assert not LimitWatch()
    assert LimitWatch().judge(seen(1_000_000, threads=1000)) is None


def test_near_its_limit_it_is_looked_at_more_often() -> None:
    watch = LimitWatch(memory_bytes=100 * MIB)
    watch.judge(seen(20))
    assert watch.interval_s == CALM_S
    watch.judge(seen(60))
    assert watch.interval_s == CLOSE_S
    watch.judge(seen(30))
    assert watch.interval_s == CALM_S
