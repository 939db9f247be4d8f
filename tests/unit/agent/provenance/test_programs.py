"""Programs of tools, as a worker looks for them."""

from pathlib import Path

import pytest

from joblens.agent.provenance.programs import Programs
from joblens.model.delivery import Order, SoughtProgram, ToolPrograms
from joblens.model.errors import CommandNotFound

CHECK = ("--check",)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has a line for each time that `solver`, alone in PATH, was checked. It fails until there is `good`."""
    program = tmp_path / "solver"
    program.write_text(f"#!/bin/sh\necho >> {tmp_path}/asked\n[ -e {tmp_path}/good ]\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "asked"


def test_one_that_failed_is_not_asked_for_each_of_many_jobs(asked: Path) -> None:
    programs = Programs(failed_s=10.0, now_s=lambda: 100.0)
    assert [programs.usable(("solver",), CHECK) for _ in range(5)] == [None] * 5
    assert len(asked.read_text().splitlines()) == 1


def test_one_that_failed_is_asked_again_after_a_while(asked: Path) -> None:
    now_s = 100.0
    programs = Programs(failed_s=10.0, now_s=lambda: now_s)
    assert programs.usable(("solver",), CHECK) is None
    (asked.parent / "good").touch()
    now_s = 110.0
    found = [programs.usable(("solver",), CHECK) for _ in range(5)]
    assert found == [str(asked.parent / "solver")] * 5
    assert len(asked.read_text().splitlines()) == 2


def test_one_that_hangs_while_it_is_checked_does_not_pass(asked: Path) -> None:
    (asked.parent / "solver").write_text("#!/bin/sh\nexec /bin/sleep 1000\n")
    assert Programs(check_s=0.05).usable(("solver",), CHECK) is None


def test_a_command_without_programs_to_find_stays_as_it_is() -> None:
    assert Programs().command_of(Order(argv=("no-such-program", "x"))) == ("no-such-program", "x")


def test_programs_are_put_into_their_words_and_nowhere_else(asked: Path) -> None:
    (asked.parent / "good").touch()
    here = str(asked.parent / "solver")
    sought = (
        SoughtProgram(index=0, around=("", ""), names=("no-such-program", "solver"), check=CHECK),
        SoughtProgram(index=2, around=("--a=", ":", ";"), names=("solver",)),
    )
    order = Order(
        argv=("first", "solver", "--a=solver:solver;"), programs=ToolPrograms(tool="t", sought=sought)
    )
    assert Programs().command_of(order) == (here, "solver", f"--a={here}:{here};")


def test_what_is_missing_is_reported_with_what_to_do() -> None:
    sought = SoughtProgram(index=0, around=("", ""), names=("no-such-a", "no-such-b"))
    for wanted, result in (
        (ToolPrograms(tool="t", sought=(sought,)), "there is no program no-such-a or no-such-b"),
        (ToolPrograms(tool="t", needs=("sh", "no-such-c"), install="get it"), "no-such-c; get it"),
    ):
        with pytest.raises(CommandNotFound, match=result) as raised:
            Programs().command_of(Order(argv=("x",), programs=wanted))
        assert raised.value.exit_code == 127
