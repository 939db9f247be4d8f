"""A launcher that was started before an update imports some modules only when it needs them: it then gets
those of the new version, and calls them as the old one did."""

import inspect
import sys
from importlib import import_module
from pathlib import Path

import pytest

from joblens.agent.launcher import launcher

CALLS = [
    ("kill_with_owner", "end_with_owner", (["/group"], 1)),
    ("kill_with_owner", "remove_groups", (["/group"],)),
    ("kill_with_owner", "end_job", (["/group"],)),
    ("kill_with_owner", "end_slot_with_owner", (["/group"], print)),
    ("launcher_child", "child_becomes_job", (["/file"], [2], 3, 4)),
    ("launcher_terminal", "restore_terminal", ([],)),
    ("slot_launcher_start", "set_limits", ("7:10:20",)),
    ("slot_launcher_start", "receive_groups", (3,)),
    ("slot_launcher_start", "mapped_packets", (3,)),
]


@pytest.mark.parametrize(("module", "name", "arguments"), CALLS)
def test_a_running_launcher_finds_what_it_imports_later(
    module: str, name: str, arguments: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(launcher.__file__).parent), *sys.path])
    function = getattr(import_module(f"joblens.agent.launcher.{module}"), name)
    inspect.signature(function).bind(*arguments)


def test_end_job_takes_how_to_reap_by_name() -> None:
    from joblens.agent.launcher import kill_with_owner

    inspect.signature(kill_with_owner.end_job).bind(["/group"], reap=print)
