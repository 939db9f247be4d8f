"""What the machine is, where it is no Linux."""

import os
import platform

from joblens.probes.host.machine_load import HostFacts
from joblens.probes.host.portable import read_portable_host


def read_portable_facts() -> HostFacts:
    return HostFacts(
        hostname=platform.node(),
        kernel=f"{platform.system()} {platform.release()}",
        boot_id="",
        cpu_count=os.cpu_count(),
        memory_total_bytes=read_portable_host().get("host_memory_total_bytes"),
    )
