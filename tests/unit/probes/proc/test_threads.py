from collections.abc import Callable
from pathlib import Path

import pytest

from joblens.model.jobs.details import ThreadTable
from joblens.probes.proc import threads
from joblens.probes.proc.threads import (
    Scheduling,
    ThreadsProbe,
    parse_sched,
    parse_schedstat,
    parse_switches,
    parse_thread_stat,
)

_STAT = (
    b"812 (a (odd) name) R 1 812 812 0 -1 4194304 10 0 0 0 %d %d 0 0 20 0 2 0 %d "
    b"1 1 1 1 1 1 1 1 0 0 0 0 0 0 0 17 %d 0 0 0 0 0\n"
)
_SCHED = b"""name (812, #threads: 2)
-------------------------------------------------------------------
se.exec_start                                :      22106393.697829
se.nr_migrations                             :                    7
nr_switches                                  :                   30
nr_voluntary_switches                        :                   21
nr_involuntary_switches                      :                    9
"""


@pytest.fixture(autouse=True)
def a_look_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_TIMES_NS", "_SCAN_NS", "_SCAN_WALL_NS"):
        monkeypatch.setattr(threads, name, 10**10)


def _never(_tid: int, _start_ticks: int) -> bool:
    return False


def _table(probe: ThreadsProbe) -> ThreadTable:
    table = probe.read().threads
    assert table is not None
    return table


def test_the_files_of_a_thread_are_understood() -> None:
    stat = parse_thread_stat(_STAT % (120, 30, 4711, 3))
    assert (stat.name, stat.user_ticks, stat.system_ticks) == ("a (odd) name", 120, 30)
    assert (stat.start_ticks, stat.last_cpu) == (4711, 3)
    assert parse_schedstat(b"123456789 987 42\n") == (123456789, 987)
    assert parse_sched(_SCHED) == Scheduling(21, 9, 7)
    assert parse_sched(b"another form\n") == Scheduling(None, None, None)
    status = b"Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n"
    assert parse_switches(status) == Scheduling(5, 2, None)


def test_a_thread_keeps_the_name_under_which_it_was_hot(tmp_path: Path) -> None:
    """`sh -c 'work; sleep 2'`: the shell has become sleep by the time of the last look."""

    def look(name: bytes, cpu_ms: int) -> tuple[str, str]:
        machine.thread(812, cpu_ms=cpu_ms)
        stat = tmp_path / "812" / "task" / "812" / "stat"
        stat.write_bytes(stat.read_bytes().replace(b"a (odd) name", name))
        [use] = _table(probe).threads
        return use.name, use.process

    machine = _Machine(tmp_path)
    machine.thread(812, cpu_ms=0)
    probe = ThreadsProbe(lambda: [812], _never, proc=str(tmp_path))
    assert look(b"sh", 1000) == ("sh", "sh")
    assert look(b"sleep", 1002) == ("sh", "sh")
    assert look(b"python3", 1500) == ("sh", "sh")
    assert look(b"python3", 3000) == ("python3", "python3")  # it has used more by now


class _Machine:
    """A /proc made up of one process, whose threads do what a test wants."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def thread(self, tid: int, cpu_ms: int, *, wait_ms: int = 0, start: int = 1000, pid: int = 812) -> None:
        folder = self.root / str(pid) / "task" / str(tid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(f"{cpu_ms * 10**6} {wait_ms * 10**6} 1\n")
        stat = _STAT % (cpu_ms // 10, 0, start, 1)
        (folder / "stat").write_bytes(stat)
        (self.root / str(pid) / "stat").write_bytes(stat)
        (folder / "sched").write_bytes(_SCHED)

    def end(self, tid: int, pid: int = 812) -> None:
        folder = self.root / str(pid) / "task" / str(tid)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    def probe(
        self, was_before: Callable[[int, int], bool] = _never, earlier: ThreadTable | None = None
    ) -> ThreadsProbe:
        return ThreadsProbe(lambda: [812], was_before, earlier=earlier, proc=str(self.root), now_us=lambda: 5)


def test_the_hottest_thread_comes_first_and_the_sums_are_of_all(tmp_path: Path) -> None:
    machine = _Machine(tmp_path)
    machine.thread(812, 40, wait_ms=3)
    machine.thread(813, 900, wait_ms=20)
    table = _table(machine.probe())
    assert [(use.tid, use.cpu_usec, use.wait_usec) for use in table.threads] == [
        (813, 900_000, 20_000),
        (812, 40_000, 3_000),
    ]
    assert (table.seen, table.cpu_usec, table.wait_usec, table.migrations) == (2, 940_000, 23_000, 14)
    assert (table.threads[0].switches_voluntary, table.threads[0].switches_involuntary) == (21, 9)


def test_what_a_thread_used_while_it_waited_to_become_the_job_is_not_the_jobs(tmp_path: Path) -> None:
    machine = _Machine(tmp_path)
    machine.thread(812, 40, wait_ms=3)
    folder = tmp_path / "812" / "task" / "812"
    files = {name: (folder / name).read_bytes() for name in ("schedstat", "stat", "sched")}
    machine.thread(812, 100, wait_ms=10)
    machine.thread(813, 30)
    probe = ThreadsProbe(lambda: [812], _never, waited=(812, files), proc=str(tmp_path))
    table = _table(probe)
    assert {use.tid: (use.cpu_usec, use.wait_usec, use.process) for use in table.threads} == {
        812: (60_000, 7_000, "a (odd) name"),
        813: (30_000, 0, "a (odd) name"),
    }
    assert (table.seen, table.unread) == (2, 0)


def test_a_thread_that_has_ended_stays_as_it_was_last_seen(tmp_path: Path) -> None:
    machine = _Machine(tmp_path)
    machine.thread(812, 40)
    machine.thread(813, 900)
    probe = machine.probe()
    probe.read()
    machine.end(813)
    table = _table(probe)
    assert [(use.tid, use.is_alive) for use in table.threads] == [(813, False), (812, True)]
    assert table.cpu_usec == 940_000


def test_threads_that_ended_while_nobody_looked_are_kept_from_the_table_before(tmp_path: Path) -> None:
    machine = _Machine(tmp_path)
    machine.thread(812, 40, wait_ms=3)
    machine.thread(813, 900, wait_ms=20)
    earlier = _table(machine.probe())
    machine.end(813)
    machine.thread(812, 50, wait_ms=3)
    machine.thread(814, 10)
    table = _table(machine.probe(earlier=earlier))
    assert [(use.tid, use.cpu_usec, use.is_alive) for use in table.threads] == [
        (813, 900_000, False),
        (812, 50_000, True),
        (814, 10_000, True),
    ]
    assert (table.seen, table.cpu_usec, table.wait_usec, table.migrations) == (3, 960_000, 23_000, 21)


def test_another_thread_with_the_number_of_one_before_is_another(tmp_path: Path) -> None:
    machine = _Machine(tmp_path)
    machine.thread(812, 40)
    machine.thread(813, 900)
    earlier = _table(machine.probe())
    machine.thread(813, 20)
    table = _table(machine.probe(earlier=earlier))
    assert [(use.tid, use.cpu_usec) for use in table.threads] == [
        (813, 900_000),
        (812, 40_000),
        (813, 20_000),
    ]
    assert table.seen == 3
    again = _table(machine.probe(earlier=table))
    assert (again.threads, again.seen) == (table.threads, 3)


def test_totals_of_a_table_before_do_not_go_back(tmp_path: Path) -> None:
    machine = _Machine(tmp_path)
    machine.thread(812, 40)
    many = ThreadTable(at_us=1, seen=5000, cpu_usec=10**9, wait_usec=7, migrations=70)
    table = _table(machine.probe(earlier=many))
    assert (table.seen, table.cpu_usec, table.wait_usec, table.migrations) == (5000, 10**9, 7, 70)


def test_no_more_than_256_are_kept_and_none_is_missing_in_the_sums(tmp_path: Path) -> None:
    machine = _Machine(tmp_path)
    machine.thread(812, 1)
    probe = machine.probe()
    for tid in range(1000, 1700):
        machine.thread(tid, tid)
        if tid % 50 == 49:
            probe.read()
            for old in range(tid - 49, tid + 1):
                machine.end(old)
    table = _table(probe)
    assert len(table.threads) == 256
    assert [use.tid for use in table.threads] == list(range(1699, 1443, -1))
    assert table.seen == 701
    assert table.cpu_usec == 1000 * (1 + sum(range(1000, 1700)))
    assert len(probe._ended) <= 512


def test_a_number_that_the_kernel_gave_to_another_thread_is_another_thread(tmp_path: Path) -> None:
    machine = _Machine(tmp_path)
    machine.thread(813, 900)
    probe = machine.probe()
    probe.read()
    machine.thread(813, 10)
    table = _table(probe)
    assert [(use.cpu_usec, use.is_alive) for use in table.threads] == [(900_000, False), (10_000, True)]
    assert table.seen == 2


def test_what_a_thread_used_before_the_job_is_not_the_jobs(tmp_path: Path) -> None:
    machine = _Machine(tmp_path)
    machine.thread(812, 400, wait_ms=7, start=1000)
    probe = machine.probe(lambda _tid, start_ticks: start_ticks < 2000)
    machine.thread(812, 450, wait_ms=9, start=1000)
    machine.thread(813, 70, start=2500)
    table = _table(probe)
    assert [(use.tid, use.cpu_usec, use.wait_usec) for use in table.threads] == [
        (813, 70_000, 0),
        (812, 50_000, 2_000),
    ]
    assert table.threads[1].user_usec == 50_000
    assert table.threads[1].migrations == 0


def test_nothing_new_is_not_reported_again(tmp_path: Path) -> None:
    machine = _Machine(tmp_path)
    machine.thread(812, 40)
    probe = machine.probe()
    assert probe.read().threads is not None
    assert probe.read().threads is None


def test_a_kernel_without_the_schedulers_pages_leaves_those_numbers_unknown(tmp_path: Path) -> None:
    machine = _Machine(tmp_path)
    machine.thread(812, 40)
    folder = tmp_path / "812" / "task" / "812"
    (folder / "sched").unlink()
    (folder / "schedstat").unlink()
    (folder / "status").write_bytes(b"x\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n")
    table = _table(machine.probe())
    (use,) = table.threads
    assert (use.cpu_usec, use.wait_usec, use.migrations, use.switches_voluntary) == (40_000, None, None, 5)
    assert (table.wait_usec, table.migrations) == (None, None)


def test_a_look_that_takes_too_long_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = _Machine(tmp_path)
    for tid in range(900, 910):
        machine.thread(tid, tid)
    monkeypatch.setattr(threads, "_TIMES_NS", 3)
    clock = iter(range(10**6))
    monkeypatch.setattr("time.thread_time_ns", lambda: next(clock))
    table = _table(machine.probe())
    assert 0 < table.seen < 10
    assert table.seen + table.unread == 10
    probe = machine.probe()
    for _ in range(4):
        table = _table(probe)
        if not table.unread:
            break
    assert (table.seen, table.unread, table.cpu_usec) == (10, 0, 1000 * sum(range(900, 910)))


def test_a_look_that_did_not_reach_every_thread_is_not_the_last_of_an_idle_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = _Machine(tmp_path)
    for tid in range(900, 910):
        machine.thread(tid, 10)
    probe = machine.probe()
    probe.read()
    stable = [probe.is_stable]
    for tid in range(900, 910):
        machine.thread(tid, 20)  # all of them have run, and sleep now
    clock = iter(range(10**6))
    with monkeypatch.context() as hurried:
        hurried.setattr(threads, "_TIMES_NS", 3)
        hurried.setattr("time.thread_time_ns", lambda: next(clock))
        assert _table(probe).cpu_usec < 10 * 20_000
        stable.append(probe.is_stable)
    assert _table(probe).cpu_usec == 10 * 20_000
    assert [*stable, probe.is_stable] == [True, False, True]


def test_threads_that_ended_unread_are_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = _Machine(tmp_path)
    for tid in range(900, 910):
        machine.thread(tid, tid)
    monkeypatch.setattr(threads, "_TIMES_NS", 3)
    clock = iter(range(10**6))
    monkeypatch.setattr("time.thread_time_ns", lambda: next(clock))
    probe = machine.probe()
    seen = len(probe._living)
    for tid in set(range(900, 910)) - probe._living.keys():
        machine.end(tid)
    table = _table(probe)
    assert 0 < seen < 10
    assert (table.seen, table.unread) == (seen, 10 - seen)


def test_time_is_left_for_those_that_ran_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their moves and switches are what one wants to know of a job with many threads."""
    machine = _Machine(tmp_path)
    for tid in range(900, 910):
        machine.thread(tid, 5000 if tid == 905 else 10)
    clock = iter(range(10**6))
    monkeypatch.setattr(threads, "_TIMES_NS", 10)
    monkeypatch.setattr(threads, "_SCAN_NS", 13)
    monkeypatch.setattr("time.thread_time_ns", lambda: next(clock))
    table = _table(machine.probe())
    hottest, *others = table.threads
    assert (table.seen, hottest.tid, hottest.migrations) == (10, 905, 7)
    assert None in [use.migrations for use in others]
    assert table.migrations is not None
    assert table.migrations % 7 == 0


def test_a_process_has_its_parent_and_times_and_a_thread_has_not(tmp_path: Path) -> None:
    machine = _Machine(tmp_path)
    machine.thread(812, 40)
    machine.thread(813, 20)
    probe = machine.probe()
    by_tid = {use.tid: use for use in _table(probe).threads}
    assert (by_tid[812].parent, by_tid[812].ended_at_us) == (1, None)
    assert by_tid[812].started_at_us is not None
    assert (by_tid[813].parent, by_tid[813].started_at_us) == (None, None)
    machine.end(812)
    [gone] = [use for use in _table(probe).threads if use.tid == 812]
    assert gone.ended_at_us is not None
    assert gone.started_at_us == by_tid[812].started_at_us
