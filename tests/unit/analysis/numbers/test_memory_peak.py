"""The peak of a control group, as most short jobs get it and as all others do."""

import random
from typing import Any

from joblens.analysis.numbers.sample_buffer import group_peak, quiet_peak
from joblens.model.jobs.sample import Sample

SIZES = (None, 0, 0, 1, 4096, 700_000, 1 << 20, (1 << 20) + 1, 3 << 20, 90 << 20)
FIELDS = (
    "memory_kernel_peak_bytes",
    "memory_file_bytes",
    "memory_shmem_bytes",
    "memory_slab_reclaimable_bytes",
    "io_read_bytes",
)


def test_a_quiet_job_has_the_peak_that_the_full_account_gives() -> None:
    choice = random.Random(5)
    quiet = 0
    for _ in range(20_000):
        start: dict[str, Any] = {name: choice.choice((None, 0, 0, 0, 4096)) for name in FIELDS}
        end: dict[str, Any] = {name: choice.choice(SIZES) for name in FIELDS}
        samples = [Sample(at_us=1, elapsed_us=0, **start), Sample(at_us=2, elapsed_us=1, **end)]
        sampled, held = choice.choice(SIZES) or 0, choice.choice(SIZES)
        io_bytes, removed = choice.choice((0, 0, 5000)), choice.choice((0, 0, 5000))
        found = quiet_peak(samples, sampled, io_bytes, removed)
        if found is not None:
            quiet += 1
            assert found == group_peak(samples, sampled, held, io_bytes, removed)
    assert quiet > 500


def test_a_job_that_was_seen_in_between_or_did_io_is_not_quiet() -> None:
    zero, end = (
        Sample(at_us=1, elapsed_us=0, memory_file_bytes=0),
        Sample(at_us=2, elapsed_us=1, memory_file_bytes=0, memory_kernel_peak_bytes=7),
    )
    assert quiet_peak([zero, end], 0, 0, 0) == (7, False)
    assert quiet_peak([zero, end, end], 0, 0, 0) is None
    assert quiet_peak([zero, end], 0, 1, 0) is None
    assert quiet_peak([zero, end], 0, 0, 1) is None
