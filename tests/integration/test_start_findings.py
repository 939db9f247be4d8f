"""Time that goes into starting, seen in real jobs."""

import pytest

from tests.conftest import RunJoblens

# As long as it takes to use 1.5 s of CPU time, however busy the machine is.
_LOOP = """
while :; do
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do /bin/true; done
    used=$(awk '{print $14 + $15 + $16 + $17}' /proc/$$/stat)
    [ "$used" -lt 150 ] || exit 0
done
"""


@pytest.mark.slow
def test_a_loop_around_a_small_program_is_reported(joblens: RunJoblens) -> None:
    record = joblens("run", "--json", "--", "bash", "-c", _LOOP, code=0).json
    assert "many-processes" in [finding["code"] for finding in record["findings"]]


@pytest.mark.slow
def test_a_program_that_computes_is_not(joblens: RunJoblens) -> None:
    busy = "import time\nwhile time.process_time() < 1.5: [0] * 100_000"
    record = joblens("run", "--json", "--", "python3", "-c", busy, code=0).json
    assert not {"many-processes", "slow-start"} & {finding["code"] for finding in record["findings"]}
