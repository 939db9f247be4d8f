"""The network of a container, which has a namespace of its own."""

from pathlib import Path

import pytest

from tests.integration.background_jobs import open_cli
from tests.integration.engines import Engine
from tests.integration.network_jobs import packets_or_skip

PING_BYTES = 20 + 8 + 56


@pytest.mark.cgroup
def test_a_containers_packets_are_those_of_its_own_interface(docker: Engine, tmp_path: Path) -> None:
    packets_or_skip()
    with open_cli("cgroup", tmp_path) as one:
        line = "ping -c 5 -i 0.1 127.0.0.1 > /dev/null; sleep 0.5"
        ran = one(*docker.options, "--interval", "50ms", "--", "sh", "-c", line)
        samples = one.samples(ran.record["job_uuid"])
    tables = [sample.interfaces for _, sample in samples if sample.interfaces]
    # Five questions and five answers. The kernel itself sends the answers, for nobody: they come in, but do
    # not go out of the job.
    assert (tables[-1]["lo"].rx_packets, tables[-1]["lo"].rx_bytes) == (10, 10 * PING_BYTES)
    assert ran.usage["network_tx_packets"] == 5
    assert ran.usage["network_rx_packets"] >= 5
