import contextlib
import gzip
import os
import shutil
import stat
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from joblens.analysis.formats.gpu import read_gpu_facts
from joblens.analysis.formats.sample import from_sample_object
from joblens.model.jobs.details import Details, GpuFacts
from joblens.model.jobs.sample import Sample
from joblens.stores.sinks.sample_jsonl_gz import SampleJsonlGz, _GzipStream
from tests.unit.stores.sample_series import busy_series, gpu_series
from tests.unit.stores.sinks.test_history_jsonl import ended_record


def _files(folder: Path, uuid: str = "a1") -> list[Path]:
    return sorted((folder / uuid).iterdir())


def objects_in(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file) as plain:
        return [msgspec.json.decode(line) for line in plain]


def lines_before_the_cut(file: Path) -> int:
    """As any reader of gzip finds them."""
    found = 0
    with gzip.open(file) as plain, contextlib.suppress(EOFError, gzip.BadGzipFile, zlib.error):
        for _ in plain:
            found += 1
    return found


def test_samples_are_written_live_and_read_back(tmp_path: Path) -> None:
    record, samples = ended_record("a1"), busy_series(5)
    sink = SampleJsonlGz(str(tmp_path))
    sink.job_started(record)
    sink.samples_taken("a1", samples[:2])
    (file,) = _files(tmp_path)
    assert file.name == "20251113-021320.jsonl.gz"
    assert len(objects_in(file)) == 2
    for sample in samples[2:]:
        sink.samples_taken("a1", [sample])
    sink.jobs_ended([record])
    sink.close()
    objects = objects_in(file)
    assert [from_sample_object(each).cpu_total_usec for each in objects] == [
        each.cpu_total_usec for each in samples
    ]
    assert objects[0]["cpu"]["usage_percent"] is None
    assert objects[1]["cpu"]["usage_percent"] > 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_an_end_that_is_shorter_than_the_one_before_leaves_nothing_of_that(tmp_path: Path) -> None:
    """Lines that resemble each other closely take less space together than one after the other."""
    shrunk = 0
    for length in range(1, 100):
        path, lines, sizes = tmp_path / f"{length}.gz", b"", list[int]()
        stream = _GzipStream(str(path), 100)
        for line in (b"ab" * length + b"\n", b"ab\n") * 2:
            lines += line
            assert stream.append(line, 1 << 20)
            packed = path.read_bytes()
            plain = zlib.decompressobj(31)
            assert (plain.decompress(packed), plain.unused_data) == (lines, b"")
            sizes.append(len(packed))
        shrunk += sizes != sorted(sizes)
    assert shrunk


def test_a_file_cut_anywhere_gives_the_lines_before(tmp_path: Path) -> None:
    sink = SampleJsonlGz(str(tmp_path))
    sink.samples_taken("a1", busy_series(200))
    (file,) = _files(tmp_path)
    whole = file.read_bytes()
    found = []
    for tenths in range(1, 10):
        file.write_bytes(whole[: len(whole) * tenths // 10])
        found.append(lines_before_the_cut(file))
    assert found == sorted(found)
    assert found[4] > 60
    file.write_bytes(whole[:-9] + b"garbage")
    assert lines_before_the_cut(file) >= 199


def _quiet_hour() -> list[Sample]:
    """A job that waits, every 5 s; the machine beside it does not."""
    first, *others = busy_series(720, interval_us=5_000_000)
    moving = ("at_us", "elapsed_us", "host_cpu_busy_usec", "host_cpu_total_usec", "host_load1", "open_files")
    rest = [structs.replace(first, **{name: getattr(one, name) for name in moving}) for one in others]
    return [first, *rest]


def _found_gpus_late() -> list[Sample]:
    """Lines of several kilobytes, after shorter ones."""
    return [*busy_series(20), *gpu_series(720, gpus=8)[20:]]


@pytest.mark.parametrize(
    ("samples", "most"), [(_quiet_hour(), 40_000), (busy_series(720), None), (_found_gpus_late(), None)]
)
def test_an_hour_is_hardly_larger_than_one_gzip_stream_of_its_lines(
    samples: list[Sample], most: int | None, tmp_path: Path
) -> None:
    sink = SampleJsonlGz(str(tmp_path))
    for sample in samples:
        sink.samples_taken("a1", [sample])
    (file,) = _files(tmp_path)
    size, lines = file.stat().st_size, gzip.decompress(file.read_bytes())
    assert lines.count(b"\n") == 720
    one_stream = len(gzip.compress(lines, 6))
    assert one_stream > 30_000
    assert size <= 1.15 * one_stream
    assert most is None or size <= most


def test_a_full_disk_leaves_the_lines_before_and_none_is_lost_when_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    sink = SampleJsonlGz(str(tmp_path), warn=warnings.append)
    samples = busy_series(3)
    sink.samples_taken("a1", samples[:1])
    (file,) = _files(tmp_path)
    write, is_full = os.pwrite, [True]

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        grows = offset + len(data) > file.stat().st_size
        return write(descriptor, data[: len(data) // 2] if grows and is_full[0] else data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    sink.samples_taken("a1", samples[1:2])
    assert len(objects_in(file)) == 1
    assert len(warnings) == 1
    is_full[0] = False
    sink.samples_taken("a1", samples[2:])
    assert len(objects_in(file)) == 3


def test_a_file_that_was_removed_is_created_again(tmp_path: Path) -> None:
    sink = SampleJsonlGz(str(tmp_path))
    samples = busy_series(2)
    sink.samples_taken("a1", samples[:1])
    shutil.rmtree(tmp_path / "a1")
    sink.samples_taken("a1", samples[1:])
    (file,) = _files(tmp_path)
    assert len(objects_in(file)) == 1


def test_a_file_grown_past_its_size_is_followed_by_another(tmp_path: Path) -> None:
    sink = SampleJsonlGz(str(tmp_path), max_file_size=2000)
    samples = busy_series(9, interval_us=100_000)
    for sample in samples:
        sink.samples_taken("a1", [sample])
    files = _files(tmp_path)
    assert len(files) > 1
    assert all(file.stat().st_size <= 2000 for file in files)
    stamps = [each["timestamp"] for file in files for each in objects_in(file)]
    assert stamps == sorted(stamps)
    assert len(stamps) == 9


def test_a_folder_that_cannot_be_written_is_one_warning_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "a1").write_text("in the way")
    warnings: list[str] = []
    sink = SampleJsonlGz(str(tmp_path), warn=warnings.append)
    sink.samples_taken("a1", busy_series(1))
    sink.samples_taken("a1", busy_series(1))
    assert len(warnings) == 1


def test_a_start_that_is_said_again_begins_no_new_file(tmp_path: Path) -> None:
    samples = busy_series(3)
    sink = SampleJsonlGz(str(tmp_path))
    sink.samples_taken("a1", samples[:1])
    for sample in samples[1:]:
        sink.job_started(ended_record("a1"))
        sink.samples_taken("a1", [sample])
    (file,) = _files(tmp_path)
    objects = objects_in(file)
    assert [each["cpu"]["usage_percent"] is None for each in objects] == [True, False, False]
    assert objects[2]["sample_interval"] == (samples[2].elapsed_us - samples[1].elapsed_us) * 1000


def test_lines_say_what_each_gpu_is_and_lose_no_number(tmp_path: Path) -> None:
    samples = gpu_series(2)
    (name,) = samples[0].gpus or {}
    facts = GpuFacts(id=name, vendor="nvidia", index=0, name="NVIDIA H200", memory_total_bytes=140 << 30)
    sink = SampleJsonlGz(str(tmp_path))
    sink.details_taken("a1", Details(gpus=(facts,)))
    sink.job_started(ended_record("a1"))
    sink.samples_taken("a1", samples)
    objects = objects_in(_files(tmp_path)[0])
    assert [from_sample_object(each) for each in objects] == samples
    assert read_gpu_facts(objects[0]) == (facts,)
    assert objects[1]["gpu"][0]["name"] == "NVIDIA H200"
