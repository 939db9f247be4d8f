"""What a container's client notices of out-of-memory kills while the group is there."""

from pathlib import Path

from joblens.agent.containers.gauge import OomWatch

EVENTS = "low 0\nhigh 0\nmax 12\noom 1\noom_kill {}\noom_group_kill 0\n"


def test_a_kill_is_remembered_when_the_group_is_gone(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text(EVENTS.format(0))
    watch = OomWatch({"unified": str(tmp_path)})
    assert (watch.has_killed, watch.fd >= 0) == (False, True)
    events.write_text(EVENTS.format(1))
    watch.read()
    events.unlink()
    watch.read()
    assert watch.has_killed
    assert watch.fd == -1


def test_a_group_without_the_counter_is_not_watched(tmp_path: Path) -> None:
    for groups in ({}, {"memory": str(tmp_path)}, {"unified": str(tmp_path / "gone")}):
        watch = OomWatch(groups)
        watch.read()
        assert (watch.fd, watch.has_killed) == (-1, False)
