"""Slots whose groups turn out to be unusable."""

from pathlib import Path

import pytest

import joblens
from joblens.agent.cgroups.groups import JobGroups
from joblens.model.errors import AccountingUnavailable
from tests.integration.cgroup_jobs import factory_or_skip


def test_a_slot_that_cannot_join_its_groups_falls_back_to_the_process_tree_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    factory_or_skip()
    made: list[dict[str, str]] = []

    def attach_files(groups: JobGroups) -> list[str]:
        made.append(groups.paths)
        return [str(tmp_path / "gone" / "cgroup.procs")]

    monkeypatch.setattr(JobGroups, "attach_files", attach_files)
    results = list(joblens.map_commands([["true"]] * 4, jobs=2, store=str(tmp_path / "s.db")))
    assert [result.ok for result in results] == [True] * 4
    attempts = [result.record.attempt for result in results]
    assert {attempt.accounting for attempt in attempts if attempt} == {"process-tree"}
    assert len(made) == 1  # not tried again
    assert not any(Path(path).exists() for path in made[0].values())
    (warning,) = capfd.readouterr().err.splitlines()
    assert warning.startswith("joblens: warning: jobs are measured by their process tree: a launcher cannot")


def test_a_slot_that_must_have_groups_and_cannot_join_them_fails_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory_or_skip()
    monkeypatch.setenv("JOBLENS_LIMITS_ACCOUNTING", "cgroup")
    monkeypatch.setattr(JobGroups, "attach_files", lambda _: [str(tmp_path / "gone" / "cgroup.procs")])
    with pytest.raises(AccountingUnavailable, match="cannot join its control group"):
        list(joblens.map_commands([["true"]], store=str(tmp_path / "s.db")))
