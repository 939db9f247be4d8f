"""What jobs run in is looked up once for each kind of command, and nobody waits for it for long."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from joblens.agent.provenance.collector import ProvenanceCollector
from joblens.agent.provenance.parts import FILTERS, ProvenanceParts
from joblens.probes.host.machine_load import read_host
from joblens.probes.provenance.program_files import CommandKind
from tests.unit.agent.provenance.collected import Kept, ended, job


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def collector(kept: Kept) -> Any:
    one = ProvenanceCollector(kept, read_host(), "9.9", largest_hashed=1 << 20)  # type: ignore[arg-type]
    yield one
    one.close()


def test_a_commit_in_between_is_seen(
    collector: ProvenanceCollector, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "_timeout_s", 30.0)
    git = ("git", "-C", str(tmp_path), "-c", "user.name=ada", "-c", "user.email=ada@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    commits = []
    for number in range(3):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", str(number)], check=True)
        one = job("true", cwd=str(tmp_path))
        collector.begin(one)
        attempt = collector.complete(ended(one)).attempt
        assert attempt is not None
        code = kept.seen[attempt.provenance].code
        assert code is not None
        commits.append(code.commit)
    words = [*git, "rev-list", "--reverse", "HEAD"]
    assert commits == subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def test_changes_of_a_program_that_git_knows_are_seen_at_once(
    collector: ProvenanceCollector, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "_timeout_s", 30.0)
    git = ("git", "-C", str(tmp_path), "-c", "user.name=ada", "-c", "user.email=ada@example.org")
    script = tmp_path / "s.sh"
    script.write_text("true\n")
    for words in (["init", "-q"], ["add", "s.sh"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    dirty = []
    for text in ("true\n", "true again\n"):
        script.write_text(text)
        one = job("sh", "s.sh", cwd=str(tmp_path))
        collector.begin(one)
        attempt = collector.complete(ended(one)).attempt
        assert attempt is not None
        code = kept.seen[attempt.provenance].code
        assert code is not None
        dirty.append(code.is_dirty)
    assert dirty == [False, True]


def test_a_repository_is_not_asked_where_it_would_run_programs(tmp_path: Path) -> None:
    git, ran = ("git", "-C", str(tmp_path)), tmp_path / "ran"
    file = tmp_path / "a.txt"
    file.write_text("1\n")
    (tmp_path / ".gitattributes").write_text("*.txt filter=mine\n")
    person = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
    for words in (["init", "-q"], ["add", "."], [*person, "commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run([*git, "config", "filter.mine.clean", f"sh -c 'touch {ran}; cat'"], check=True)
    file.write_text("2\n")
    kind = CommandKind(str(tmp_path), ("true",), os.environ["PATH"])
    parts = ProvenanceParts(read_host(), "9.9", ())
    found, question, root = parts.collect(kind)
    if question is not None:
        found = parts.with_changes(found, question, root)
    assert not ran.exists()
    assert found.code is not None
    assert (found.code.is_dirty, found.unknown["changes"]) == (None, FILTERS)
