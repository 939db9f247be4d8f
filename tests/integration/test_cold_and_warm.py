"""Peak memory says what a job needs, whatever of its files was in the page cache before."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import joblens as joblens_api
from joblens.model.jobs.job import Usage
from tests.integration.run_jobs import MIB, PYTHON

FILE = 96 * MIB
MAP = """
import mmap
with open({path!r}, 'rb') as file: pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(pages[place] for place in range(0, len(pages), 4096))
"""
READ = "f=open({path!r},'rb')\nwhile f.read(1<<20): pass\n"
SPIKE = "import time;x=b'x'*({spike}<<20);time.sleep(0.2);del x;time.sleep(0.1);"
WRITE = """
import os
with open({path!r}, 'wb') as file:
    for _ in range({size}): file.write(bytes(1 << 20))
os.unlink({path!r})
"""

Measure = Callable[[str], Usage]


def in_a_session(code: str) -> Usage:
    return usage_of(joblens_api.run([*PYTHON, code], interval=30))


def in_a_slot(code: str) -> Usage:
    """Behind one that peaked higher."""
    large, small = [*PYTHON, "x = b'x' * (400 << 20)"], [*PYTHON, "pass"]
    *_, last = joblens_api.map_commands([large, small, [*PYTHON, code]], jobs=1)
    return usage_of(last)


def usage_of(result: joblens_api.Result) -> Usage:
    assert result.ok, result.stderr
    assert result.record.outcome is not None
    return result.record.outcome.usage


@pytest.fixture(params=[in_a_session, in_a_slot])
def measure(request: pytest.FixtureRequest, store_path: Path) -> Measure:
    found: Measure = request.param
    if in_a_session("pass").memory_kernel_peak_bytes is None:
        pytest.skip("no control group with a peak here")
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(MIB) * (FILE // MIB))
    return path


def drop_from_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize("code", [MAP, READ, READ + SPIKE])
def test_a_cold_and_a_warm_page_cache_give_the_same_peak(measure: Measure, data: Path, code: str) -> None:
    line = code.format(path=str(data), spike=60)
    drop_from_cache(data)
    cold, warm = measure(line), measure(line)
    if (cold.memory_file_peak_bytes or 0) < FILE // 2:
        pytest.skip("this file system gives no pages back")
    assert cold.memory_peak_bytes is not None
    assert warm.memory_peak_bytes is not None
    assert abs(cold.memory_peak_bytes - warm.memory_peak_bytes) <= max(MIB, warm.memory_peak_bytes // 50)
    assert (warm.memory_file_peak_bytes or 0) < FILE // 2
    assert (cold.memory_kernel_peak_bytes or 0) > FILE


def test_a_short_spike_between_two_samples_is_found_beside_a_cold_file(measure: Measure, data: Path) -> None:
    drop_from_cache(data)
    usage = measure((READ + SPIKE).format(path=str(data), spike=150))
    assert 150 * MIB < (usage.memory_peak_bytes or 0) < 165 * MIB


def test_a_file_that_comes_and_goes_is_no_memory(measure: Measure, tmp_path: Path) -> None:
    usage = measure(WRITE.format(path=str(tmp_path / "temporary"), size=FILE // MIB))
    assert (usage.memory_kernel_peak_bytes or 0) > FILE
    assert (usage.memory_peak_bytes or 0) < 16 * MIB


def test_shared_memory_that_comes_and_goes_is_memory(measure: Measure) -> None:
    usage = measure(WRITE.format(path=f"/dev/shm/joblens-test-{os.getpid()}", size=FILE // MIB))
    assert FILE < (usage.memory_peak_bytes or 0) < FILE + 16 * MIB


def test_processes_that_spike_together_are_added_up(measure: Measure) -> None:
    one = SPIKE.format(spike=40)
    usage = measure(
        f"import os\nfor _ in range(4):\n if os.fork()==0:\n  {one}os._exit(0)\n[os.wait() for _ in range(4)]"
    )
    assert 160 * MIB < (usage.memory_peak_bytes or 0) < 190 * MIB
