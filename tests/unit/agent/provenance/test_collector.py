"""What jobs run in is looked up once for each kind of command, and nobody waits for it for long."""

import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from joblens.agent.provenance import collector as collector_module
from joblens.agent.provenance.collector import ProvenanceCollector
from joblens.agent.provenance.parts import NOT_ANSWERED, TOO_MANY, ProvenanceParts
from joblens.model.jobs.details import Provenance
from joblens.model.jobs.job import FileStamp, Record, RunLink, Status
from joblens.model.writes import JobStarted, ProvenanceSeen
from joblens.probes.host.machine_load import read_host
from joblens.probes.provenance.program_files import CommandKind
from tests.conftest import wait_until
from tests.unit.agent.provenance.collected import ATTEMPT, OUTCOME, Kept, ended, job


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def collector(kept: Kept) -> Any:
    one = ProvenanceCollector(kept, read_host(), "9.9", largest_hashed=1 << 20)  # type: ignore[arg-type]
    yield one
    one.close()


def test_jobs_of_one_kind_share_a_look(collector: ProvenanceCollector, kept: Kept) -> None:
    first = job("true", "1")
    assert collector.begin(first) == ""
    attempt = collector.complete(ended(first)).attempt
    assert attempt is not None
    later = {collector.begin(job("true", str(number))) for number in range(50)}
    assert later == {attempt.provenance}
    assert list(kept.seen) == [attempt.provenance]
    assert kept.seen[attempt.provenance].versions == {"joblens": "9.9"}


def test_what_is_known_later_than_its_start_is_written_then(
    collector: ProvenanceCollector, kept: Kept
) -> None:
    one = job("true")
    collector.begin(one)
    collector.follow(one.uuid, ATTEMPT)
    wait_until(lambda: any(isinstance(each, JobStarted) for each in kept.writes), what="the attempt again")
    seen, again = kept.writes
    assert isinstance(seen, ProvenanceSeen)
    assert again == JobStarted(one.uuid, replace(ATTEMPT, provenance=seen.digest))


def test_ends_wait_for_a_slow_look_once_and_go_on_with_what_is_known(
    collector: ProvenanceCollector, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = threading.Event()
    whole = ProvenanceParts.collect

    def collect(self: ProvenanceParts, kind: Any, **more: Any) -> Any:
        found, _, _ = whole(self, kind, **more)
        return replace(found, unknown={"changes": NOT_ANSWERED}), object(), "root"

    def with_changes(_self: ProvenanceParts, found: Provenance, _question: Any, _root: str) -> Provenance:
        slow.wait(30)
        return replace(found, unknown={})

    monkeypatch.setattr(ProvenanceParts, "collect", collect)
    monkeypatch.setattr(ProvenanceParts, "with_changes", with_changes)
    jobs = [job("true") for _ in range(200)]
    for one in jobs:
        collector.begin(one)
    wait_until(
        lambda: collector._lookups and next(iter(collector._lookups.values())).partial, what="the first half"
    )
    records = [collector.complete(ended(one)) for one in jobs]  # each a tenth of a second would be too much
    digests = {record.attempt.provenance for record in records if record.attempt}
    assert collector._timeout_s <= 0
    assert [kept.seen[digest].unknown for digest in digests] == [{"changes": NOT_ANSWERED}]
    slow.set()


def programs_of(kept: Kept, record: Record) -> dict[str, str]:
    assert record.attempt is not None
    return {
        os.path.basename(each.path): each.sha256 for each in kept.seen[record.attempt.provenance].programs
    }


def test_a_program_that_was_changed_in_between_is_looked_at_again(
    collector: ProvenanceCollector, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "_timeout_s", 30.0)
    script = tmp_path / "s.sh"
    found = []
    for text in ("one", "another"):
        script.write_text(f"echo {text}\n")
        os.utime(script, ns=(1, len(text)))
        one = job("sh", "s.sh", cwd=str(tmp_path))
        digest = collector.begin(one)
        record = collector.complete(ended(one))
        assert record.attempt is not None
        found.append(programs_of(kept, record)["s.sh"])
        assert not digest
    assert found == [hashlib.sha256(text).hexdigest() for text in (b"echo one\n", b"echo another\n")]


def test_a_program_that_was_changed_after_the_start_is_not_taken_for_what_ran(tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    script.write_text("true\n")
    kind = CommandKind(str(tmp_path), ("sh", "s.sh"), os.environ["PATH"])
    parts = ProvenanceParts(read_host(), "9.9", ())
    mtime_ns = script.stat().st_mtime_ns
    later, _, _ = parts.collect(kind, started_at_ns=mtime_ns - 1)
    assert later.programs[1].sha256 == ""
    assert "was changed after the job had started" in later.unknown["programs"]
    before, _, _ = parts.collect(kind, started_at_ns=mtime_ns)
    assert before.programs[1].sha256
    assert "programs" not in before.unknown


def test_a_script_in_the_name_of_python_is_none(tmp_path: Path) -> None:
    shim = tmp_path / "python3"
    shim.write_text("#!/bin/sh\nexec true\n")
    shim.chmod(0o755)
    kind = CommandKind(str(tmp_path), ("python3",), str(tmp_path))
    found, _, _ = ProvenanceParts(read_host(), "9.9", ()).collect(kind)
    assert found.versions == {"joblens": "9.9"}
    assert "is a script" in found.unknown["versions"]
    assert found.programs[0].version == ""


def test_lines_of_a_workflow_are_read_by_bash(
    collector: ProvenanceCollector, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "_timeout_s", 30.0)
    found: list[str] = []
    for link in (RunLink("r", 0), None):
        one = job("true; true", is_shell=True, run=link)
        collector.begin(one)
        found += programs_of(kept, collector.complete(ended(one)))
    assert found == ["bash", "sh"]


def test_too_many_kinds_are_not_distinguished(
    collector: ProvenanceCollector, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "_MOST_KINDS", 3)
    monkeypatch.setattr(collector, "_timeout_s", 30.0)
    jobs = []
    for number in range(6):
        script = tmp_path / f"script{number}"
        script.write_text(f"#!/bin/sh\nexit {number}\n")
        script.chmod(0o755)
        jobs.append(job(str(script)))
    for one in jobs:
        collector.begin(one)
    records = [collector.complete(ended(one)) for one in jobs]
    digests = [record.attempt.provenance for record in records if record.attempt]
    assert len(set(digests[:3])) == 3
    assert len(set(digests[3:])) == 1
    assert kept.seen[digests[-1]].unknown["programs"] == TOO_MANY


def test_inputs_that_changed_before_they_were_read_are_not_hashed(
    collector: ProvenanceCollector, tmp_path: Path
) -> None:
    path = tmp_path / "in"
    path.write_text("abc")
    found = path.stat()
    good = FileStamp("in", found.st_size, found.st_mtime_ns)
    stale = FileStamp(str(path), found.st_size, found.st_mtime_ns - 1)
    gone = FileStamp("nobody")
    one = job("cat", "in", cwd=str(tmp_path), inputs=(good, stale, gone))
    collector.begin(one)
    record = collector.complete(ended(one))
    assert [bool(each.digest) for each in record.inputs] == [True, False, False]


def test_words_that_a_job_of_a_workflow_names_are_not_its_outputs(
    collector: ProvenanceCollector, tmp_path: Path
) -> None:
    (tmp_path / "made").write_text("new")
    single = job("touch", "made", cwd=str(tmp_path))
    planned = job("touch", "made", cwd=str(tmp_path), run=RunLink("r", 0))
    outcomes = [collector.complete(ended(one)).outcome for one in (single, planned)]
    assert [[each.path for each in one.outputs] for one in outcomes if one] == [["made"], []]


def test_a_job_that_never_began_is_let_go(collector: ProvenanceCollector) -> None:
    one = job("true")
    collector.begin(one)
    record = Record(status=Status.ERROR, job=one, outcome=OUTCOME)
    assert collector.complete(record) is record
    assert collector._requests == {}
