"""Real processes and threads, measured from inside, against what the kernel says when they are waited for."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from joblens.agent.in_process.meter import InProcessMeter, Measurement
from joblens.model.jobs.details import GpuFacts
from joblens.probes.gpu.drm_sysfs import Card
from joblens.probes.gpu.intel_gpu_top import IntelGpuTop

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"
HOLD = "block = bytearray({mib} << 20)\nfor i in range(0, len(block), 4096): block[i] = 1\n"


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-E", "-c", code]


def own_cpu_s() -> float:
    """Of this process, which earlier tests may have left threads in."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def kernel_cpu_s() -> float:
    """Of this process and the children it has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own_cpu_s() + usage.ru_utime + usage.ru_stime


@pytest.fixture
def meter() -> Iterator[InProcessMeter]:
    made = InProcessMeter()
    yield made
    made.close()


def measure(meter: InProcessMeter, work: Callable[[], object], interval_s: float = 0.1) -> Measurement:
    window = meter.begin(interval_s, lambda first, samples: None)
    work()
    return meter.end(window)


def cpu_s(measured: Measurement) -> float:
    assert measured.usage.cpu_total_usec is not None
    return measured.usage.cpu_total_usec / 1e6


class OfChildren:
    """Measures the CPU of children: that of this process, which other threads use too, is left out."""

    def __init__(self, meter: InProcessMeter, interval_s: float = 0.1) -> None:
        self._meter = meter
        self._before_s = own_cpu_s()
        self._window = meter.begin(interval_s, lambda first, samples: None)
        self.measured: Measurement

    def end_s(self) -> float:
        self.measured = self._meter.end(self._window)
        return cpu_s(self.measured) - (own_cpu_s() - self._before_s)


def living(meter: InProcessMeter) -> int:
    """Descendants alive at the last look."""
    return 0 if meter._last is None else len(meter._last.live)


def test_cpu_of_the_calling_process_is_exact(meter: InProcessMeter) -> None:
    before = kernel_cpu_s()
    measured = measure(meter, lambda: burn(0.3))
    assert cpu_s(measured) == pytest.approx(kernel_cpu_s() - before, abs=0.02)
    assert cpu_s(measured) >= 0.3
    assert measured.usage.shared is False


def test_cpu_and_memory_of_a_child_are_its_parents_record(meter: InProcessMeter) -> None:
    before = kernel_cpu_s()
    code = HOLD.format(mib=300) + BURN.format(seconds=0.4)
    measured = measure(meter, lambda: subprocess.run(python(code), check=True))
    assert cpu_s(measured) == pytest.approx(kernel_cpu_s() - before, abs=0.05)
    assert cpu_s(measured) >= 0.38
    assert measured.usage.memory_peak_bytes is not None
    # Beside the child stands this process, whose own size depends on the tests before.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert 300 << 20 <= measured.usage.memory_peak_bytes < (350 << 20) + own


def test_a_child_that_ends_between_samples_is_counted_with_its_peak() -> None:
    # In a program of its own: the kernel keeps only the largest child that was ever waited for.
    code = f"""
import subprocess, sys
sys.path[:0] = {sys.path!r}
from joblens.agent.in_process.meter import InProcessMeter
meter = InProcessMeter()
window = meter.begin(60, lambda first, samples: None)
subprocess.run({python(HOLD.format(mib=200))!r}, check=True)
done = meter.end(window)
print(done.samples, done.usage.memory_largest_process_bytes >> 20, done.usage.lower_bounds)
"""
    done = subprocess.run(python(code), capture_output=True, text=True, check=True)
    samples, largest, lower_bounds = done.stdout.split(maxsplit=2)
    assert samples == "2"
    assert 200 <= int(largest) < 260
    assert "memory_peak_bytes" in lower_bounds
    assert "memory_largest_process_bytes" not in lower_bounds


def test_a_program_that_we_measure_with_is_not_the_measured_programs(
    meter: InProcessMeter, tmp_path: Path
) -> None:
    card = Card(
        facts=GpuFacts(id="0000:00:02.0", vendor="intel", index=0), directory="", nodes=frozenset({"card0"})
    )
    program = tmp_path / "intel_gpu_top"
    code = BURN.format(seconds=0.4) + "import sys\nsys.stdout.write('{}' * 50_000)\n"
    program.write_text(f"#!{sys.executable} -ES\n{code}")
    program.chmod(0o755)
    top = IntelGpuTop(str(program))
    alive: list[int] = []

    def watch() -> None:
        while "exit code 0" not in top.read(card)[1]:
            alive.append(living(meter))
            time.sleep(0.02)

    before = own_cpu_s()
    measured = measure(meter, watch)
    assert cpu_s(measured) < own_cpu_s() - before + 0.2
    top.close()
    assert set(alive) == {0}
    assert measured.usage.io_call_write_bytes is not None
    assert measured.usage.io_call_write_bytes < 50_000


def test_many_short_children_are_all_counted(meter: InProcessMeter) -> None:
    before = kernel_cpu_s()

    def many() -> None:
        for _ in range(150):
            os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)

    measured = measure(meter, many, interval_s=0.05)
    assert cpu_s(measured) == pytest.approx(kernel_cpu_s() - before, rel=0.1, abs=0.02)


def test_grandchildren_are_counted(meter: InProcessMeter) -> None:
    code = f"import subprocess, sys\nfor _ in range(3): subprocess.run({python(BURN.format(seconds=0.1))!r})"
    before = kernel_cpu_s()
    measured = measure(meter, lambda: subprocess.run(python(code), check=True), interval_s=0.05)
    assert cpu_s(measured) == pytest.approx(kernel_cpu_s() - before, abs=0.15)
    assert cpu_s(measured) >= 0.2


def test_a_child_alive_at_the_start_is_counted_only_from_then_on(
    meter: InProcessMeter, wait_until: Callable[..., object]
) -> None:
    code = BURN.format(seconds=0.3) + "print('burnt', flush=True)\ninput()\n" + BURN.format(seconds=0.4)
    with subprocess.Popen(python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        of_children = OfChildren(meter)
        process.communicate("\n")
    assert 0.08 <= of_children.end_s() <= 0.2


def test_a_child_alive_at_the_end_is_counted_for_what_it_used_so_far(meter: InProcessMeter) -> None:
    code = BURN.format(seconds=0.3) + "print('burnt', flush=True)\ninput()\n"
    with subprocess.Popen(python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        of_children = OfChildren(meter)
        process.stdout.readline()
        used_s = of_children.end_s()
        process.communicate("\n")
    assert used_s == pytest.approx(0.3, abs=0.06)
    assert "context_switches_voluntary" in of_children.measured.usage.unknown


def test_children_nobody_waits_for_are_counted_as_last_seen(meter: InProcessMeter) -> None:
    earlier = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        pid = os.posix_spawn(sys.executable, python(BURN.format(seconds=0.4)), dict(os.environ))
        of_children = OfChildren(meter, 0.05)
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)
        used_s = of_children.end_s()
    finally:
        signal.signal(signal.SIGCHLD, earlier)
    assert 0.25 <= used_s <= 0.5


def test_a_process_that_loses_its_parent_is_followed_once_seen(
    meter: InProcessMeter, wait_until: Callable[..., object]
) -> None:
    inner = BURN.format(seconds=0.6)
    code = f"import subprocess, time\nsubprocess.Popen({python(inner)!r})\ntime.sleep(0.3)"
    of_children = OfChildren(meter, 0.05)
    subprocess.run(python(code), check=True)
    wait_until(lambda: not living(meter), what="the orphan to end")
    assert 0.45 <= of_children.end_s() <= 0.75


def test_threads_that_overlap_are_distinguished(meter: InProcessMeter) -> None:
    results: dict[float, Measurement] = {}
    together = threading.Barrier(3)

    def work(seconds: float) -> None:
        def burn_until_all_have() -> None:  # a window that is open alone has the CPU of every thread
            burn(seconds)
            together.wait()

        together.wait()
        results[seconds] = measure(meter, burn_until_all_have)

    run_threads(work, (0.1, 0.3, 0.5))
    for seconds, measured in results.items():
        assert cpu_s(measured) == pytest.approx(seconds, abs=0.05)
        assert measured.usage.shared is True


def test_children_of_overlapping_threads_are_distinguished(meter: InProcessMeter) -> None:
    results: dict[float, Measurement] = {}
    together = threading.Barrier(2)

    def work(seconds: float) -> None:
        together.wait()
        code = python(BURN.format(seconds=seconds))
        results[seconds] = measure(meter, lambda: (subprocess.run(code, check=True), together.wait()))

    run_threads(work, (0.2, 0.6))
    assert cpu_s(results[0.2]) == pytest.approx(0.2, abs=0.1)
    assert cpu_s(results[0.6]) == pytest.approx(0.6, abs=0.1)


def test_overlapping_measurements_never_count_a_child_twice(meter: InProcessMeter) -> None:
    results: list[Measurement] = []
    before = kernel_cpu_s()

    def many(count: float) -> None:
        def spawn() -> None:
            for _ in range(int(count)):
                subprocess.run(["/bin/true"], check=True)

        results.append(measure(meter, spawn))

    run_threads(many, (40, 80))
    assert sum(map(cpu_s, results)) <= (kernel_cpu_s() - before) * 1.02


def test_a_measurement_inside_another_is_part_of_it_and_neither_is_shared(meter: InProcessMeter) -> None:
    inner: list[tuple[Measurement, float]] = []

    def burn_beside_kernel() -> None:
        before = kernel_cpu_s()
        measured = measure(meter, lambda: burn(0.2))
        inner.append((measured, kernel_cpu_s() - before))

    def both() -> None:
        burn(0.1)
        burn_beside_kernel()

    before = kernel_cpu_s()
    outer = measure(meter, both)
    for measured, kernel_s in ((outer, kernel_cpu_s() - before), *inner):
        assert cpu_s(measured) == pytest.approx(kernel_s, abs=0.03)
        assert not measured.usage.shared
    assert cpu_s(outer) - cpu_s(inner[0][0]) >= 0.09


def test_asyncio_tasks_on_one_thread_cannot_be_distinguished_and_say_so(meter: InProcessMeter) -> None:
    async def task() -> Measurement:
        window = meter.begin(0.1, lambda first, samples: None)
        await asyncio.sleep(0.02)
        burn(0.05)
        await asyncio.sleep(0.02)
        return meter.end(window)

    async def both() -> list[Measurement]:
        return list(await asyncio.gather(task(), task()))

    for measured in asyncio.run(both()):
        assert measured.usage.shared is True
        assert [finding.code for finding in measured.findings] == ["shared-measurement"]


def test_cpu_of_unmeasured_threads_beside_an_overlap_is_said_to_be_missing(meter: InProcessMeter) -> None:
    results: list[Measurement] = []
    together = threading.Barrier(2)

    def work(seconds: float) -> None:
        def burn_elsewhere() -> None:
            together.wait()
            run_threads(burn, (seconds,))
            together.wait()

        results.append(measure(meter, burn_elsewhere))

    run_threads(work, (0.1, 0.1))
    for measured in results:
        assert "cpu_total_usec" in measured.usage.lower_bounds
        assert "in no record" in measured.findings[0].text


def test_forked_children_do_not_count_their_parents_memory_again(meter: InProcessMeter) -> None:
    # In a program of its own: this one's size is not known, and forking it with threads is not safe.
    code = f"""
import os, sys, time
sys.path[:0] = {sys.path!r}
from joblens.agent.in_process.meter import InProcessMeter
block = bytearray(100 << 20)
for i in range(0, len(block), 4096): block[i] = 1
meter = InProcessMeter()
window = meter.begin(0.05, lambda first, samples: None)
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        time.sleep(0.5)
        os._exit(0)
    children.append(pid)
for pid in children: os.waitpid(pid, 0)
print(meter.end(window).usage.memory_peak_bytes >> 20)
"""
    done = subprocess.run(python(code), capture_output=True, text=True, check=True)
    assert 100 <= int(done.stdout) < 180


def test_first_and_last_sample_are_always_taken_and_counters_never_go_back(meter: InProcessMeter) -> None:
    measured = measure(meter, lambda: burn(0.25), interval_s=0.05)
    samples = measured.kept
    assert measured.samples == len(samples) >= 3
    assert samples[0].cpu_total_usec == 0
    cpu = [sample.cpu_total_usec or 0 for sample in samples]
    assert cpu == sorted(cpu)
    assert samples[-1].cpu_total_usec == measured.usage.cpu_total_usec


def test_bytes_through_calls_are_counted_for_the_process_and_its_children(meter: InProcessMeter) -> None:
    def write() -> None:
        with open(os.devnull, "wb", buffering=0) as file:
            file.write(b"x" * 100_000)
        subprocess.run(["head", "-c", "300000", "/dev/zero"], stdout=subprocess.DEVNULL, check=True)

    usage = measure(meter, write).usage
    assert usage.io_call_write_bytes is not None
    assert 400_000 <= usage.io_call_write_bytes < 420_000


def test_signal_handlers_subreaper_and_children_are_left_alone(meter: InProcessMeter) -> None:
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with subprocess.Popen(["true"]) as process:
        measure(meter, lambda: burn(0.15), interval_s=0.05)
        assert process.wait() == 0  # nobody else took its exit status
    assert handlers == {number: signal.getsignal(number) for number in signal.valid_signals()}


def test_one_thread_samples_any_number_of_measurements(meter: InProcessMeter) -> None:
    before = set(threading.enumerate())  # the program's own meter may still have its thread
    windows = [meter.begin(0.05, lambda first, samples: None) for _ in range(10)]
    burn(0.12)
    begun = [thread.name for thread in threading.enumerate() if thread not in before]
    for window in windows:
        meter.end(window)
    assert begun == ["joblens-in-process"]


def test_a_meter_that_is_never_used_starts_no_thread() -> None:
    before = threading.active_count()
    InProcessMeter()
    assert threading.active_count() == before


def run_threads(work: Callable[[float], object], arguments: tuple[float, ...]) -> None:
    threads = [threading.Thread(target=work, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
