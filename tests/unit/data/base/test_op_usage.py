"""What a step used, by what is known to have happened meanwhile."""

from pathlib import Path

from joblens.data.base.op_usage import Meter, note_mapped, note_memory_of_files


def test_looking_costs_nothing_that_is_reported() -> None:
    usage = Meter().usage()
    assert (usage.read_bytes, usage.written_bytes) == (0, 0)


def test_bytes_are_those_of_calls_and_of_mapped_files(tmp_path: Path) -> None:
    meter = Meter()
    (tmp_path / "file").write_bytes(b"x" * 300_000)
    (tmp_path / "file").read_bytes()
    note_mapped(1_000)
    usage = meter.usage()
    assert usage.written_bytes == 300_000
    assert usage.read_bytes == 301_000


def test_memory_is_what_came_and_went_meanwhile() -> None:
    meter = Meter()
    held = bytearray(64 << 20)
    del held
    peak = meter.usage().memory_peak_bytes
    after = Meter().usage().memory_peak_bytes
    assert peak is None or after is None or peak - after > 32 << 20


def test_pages_of_mapped_files_are_not_among_it(tmp_path: Path) -> None:
    import mmap

    path = tmp_path / "large"
    path.write_bytes(b"x" * (64 << 20))
    before = Meter().usage().memory_peak_bytes
    meter = Meter()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[place] for place in range(0, len(mapped), 4096))
        peak = meter.usage().memory_peak_bytes
    assert peak is None or before is None or peak - before < 16 << 20


def test_nor_are_those_of_files_that_were_let_go_meanwhile(tmp_path: Path) -> None:
    import mmap

    path = tmp_path / "large"
    path.write_bytes(b"x" * (64 << 20))
    before = Meter().usage().memory_peak_bytes
    meter = Meter()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[place] for place in range(0, len(mapped), 4096))
        note_memory_of_files()
    peak = meter.usage().memory_peak_bytes
    assert peak is None or before is None or peak - before < 16 << 20
