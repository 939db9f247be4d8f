import subprocess
import zlib
from pathlib import Path

from joblens.stores.sinks.sample_jsonl_gz import SampleJsonlGz
from tests.unit.stores.sample_series import busy_series


def test_the_file_is_one_complete_gzip_stream_after_every_sample(tmp_path: Path) -> None:
    """As a crash would leave it: zcat has every line and no complaint."""
    sink = SampleJsonlGz(str(tmp_path))
    file = tmp_path / "a1" / "20251113-021320.jsonl.gz"
    for count, sample in enumerate(busy_series(40), start=1):
        sink.samples_taken("a1", [sample])
        packed = file.read_bytes()
        stream = zlib.decompressobj(31)
        assert stream.decompress(packed).count(b"\n") == count
        assert (stream.eof, stream.unused_data) == (True, b"")
    done = subprocess.run(["zcat", file], capture_output=True, check=True)
    assert (done.stdout.count(b"\n"), done.stderr) == (40, b"")
