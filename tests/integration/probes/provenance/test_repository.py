"""Commits are read from git's own files, in all the places that git keeps them."""

import os
import subprocess
from pathlib import Path

import pytest

from joblens.probes.provenance.repository import AskedChanges, find_repository


def git(folder: Path, *words: str) -> str:
    env = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        **{f"GIT_{who}_{what}": f"a{at}" for who in ("AUTHOR", "COMMITTER") for what, at in _PERSON},
    }
    done = subprocess.run(
        ["git", "-C", str(folder), *words], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


_PERSON = (("NAME", "da"), ("EMAIL", "da@example.org"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "größe/main", ".")
    (root / "a.py").write_text("1\n")
    (root / "deep" / "er").mkdir(parents=True)
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    return root


def test_the_commit_and_the_branch_of_a_folder_within(repository: Path) -> None:
    found = find_repository(str(repository / "deep" / "er"))
    assert found is not None
    assert (found.root, found.branch) == (str(repository), "größe/main")
    assert found.commit == git(repository, "rev-parse", "HEAD")


def test_packed_references_and_a_detached_head(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "pack-refs", "--all")
    assert not (repository / ".git" / "refs" / "heads" / "größe" / "main").exists()
    packed = find_repository(str(repository))
    git(repository, "checkout", "-q", "--detach")
    detached = find_repository(str(repository))
    assert packed is not None
    assert detached is not None
    assert (packed.commit, packed.branch) == (commit, "größe/main")
    assert (detached.commit, detached.branch) == (commit, "")


def test_a_further_working_tree_and_a_submodule_have_their_own_commit(
    repository: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    git(repository, "worktree", "add", "-q", "-b", "side", str(other))
    (other / "b.py").write_text("2\n")
    git(other, "add", ".")
    git(other, "commit", "-qm", "two")
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q", ".")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repository), "inner")
    for folder in (other, outer / "inner"):
        found = find_repository(str(folder))
        assert found is not None
        assert (found.root, found.commit) == (str(folder), git(folder, "rev-parse", "HEAD"))


def test_a_repository_without_a_commit_and_a_folder_without_a_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main", ".")
    empty = find_repository(str(tmp_path))
    assert empty is not None
    assert (empty.commit, empty.branch) == ("", "main")
    (tmp_path / ".git" / "HEAD").unlink()
    assert find_repository(str(tmp_path)) is None


def test_changed_files_are_seen_and_new_ones_are_not_changes(repository: Path) -> None:
    (repository / "new.txt").write_text("never added")
    assert AskedChanges(str(repository)).answer(10.0).is_dirty is False
    (repository / "a.py").write_text("3\n")
    first = AskedChanges(str(repository)).answer(10.0)
    (repository / "a.py").write_text("4\n")
    second = AskedChanges(str(repository)).answer(10.0)
    (repository / "a.py").write_text("3\n")
    third = AskedChanges(str(repository)).answer(10.0)
    assert (first.is_dirty, second.is_dirty) == (True, True)
    assert first.digest == third.digest != second.digest


def test_git_is_not_waited_for_longer_than_asked(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = repository.parent / "bin"
    programs.mkdir()
    (programs / "git").write_text("#!/bin/sh\nexec sleep 1000\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    answer = AskedChanges(str(repository)).answer(0.05)
    assert answer.is_dirty is None
    assert "did not list" in answer.why


def test_without_git_and_with_one_that_refuses_it_is_said_why(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = repository.parent / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    assert "not installed" in AskedChanges(str(repository)).answer(10.0).why
    (programs / "git").write_text("#!/bin/sh\necho 'fatal: detected dubious ownership' >&2\nexit 128\n")
    (programs / "git").chmod(0o755)
    assert AskedChanges(str(repository)).answer(10.0).why == "git status: fatal: detected dubious ownership"


def test_what_a_repository_configures_to_be_run_is_not(repository: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(trap))
    AskedChanges(str(repository)).answer(10.0)
    assert not (tmp_path / "sprung").exists()
