"""A job with everything: two GPUs, network, energy, threads, memory, a container. Built, not recorded."""

from joblens.model.jobs.details import (
    ContainerFacts,
    Details,
    Endpoint,
    EndpointTable,
    GpuFacts,
    MemoryDepth,
    ProcessMemory,
    ThreadTable,
    ThreadUse,
)
from joblens.model.jobs.sample import GpuReading, InterfaceIo, Sample
from tests.builders.past_jobs import MIB
from tests.builders.records import START_US

GIB = 1024 * MIB
FACTS = (
    GpuFacts(
        id="GPU-7f3a",
        vendor="nvidia",
        index=0,
        name="Tesla T4",
        uuid="GPU-7f3a",
        pci="0000:3B:00.0",
        driver="nvidia",
        driver_version="550.54",
        compute_capability="7.5",
        memory_total_bytes=16 * GIB,
        power_limit_mw=70_000,
    ),
    GpuFacts(
        id="0000:00:02.0", vendor="intel", index=1, name="UHD Graphics", pci="0000:00:02.0", driver="i915"
    ),
)
DETAILS = Details(
    threads=ThreadTable(
        at_us=START_US,
        seen=25,
        cpu_usec=42_000_000,
        wait_usec=1_200_000,
        migrations=310,
        source="/proc/PID/task",
        threads=(
            ThreadUse(
                pid=4242,
                tid=4243,
                process="python",
                name="worker-0",
                cpu_usec=30_000_000,
                system_usec=1_500_000,
                wait_usec=900_000,
                switches_voluntary=1200,
                switches_involuntary=34,
                migrations=12,
                last_cpu=3,
            ),
            ThreadUse(pid=4242, tid=4242, process="python", name="python", cpu_usec=12_000_000, last_cpu=0),
            ThreadUse(pid=4250, tid=4250, process="gzip", name="gzip", cpu_usec=0, is_alive=False),
        ),
    ),
    endpoints=EndpointTable(
        at_us=START_US,
        seen=3,
        source="sock_diag",
        endpoints=(
            Endpoint(
                protocol="tcp",
                address="192.0.2.7",
                port=443,
                sockets=4,
                rx_bytes=900 * MIB,
                tx_bytes=3 * MIB,
                retransmits=7,
                rtt_usec=12_300,
            ),
            Endpoint(protocol="tcp", address="::", port=8080, sockets=1, is_listener=True),
            Endpoint(protocol="udp", address="2001:db8::53", port=53, sockets=2),
        ),
    ),
    memory=MemoryDepth(
        at_us=START_US,
        pss_bytes=700 * MIB,
        anon_bytes=600 * MIB,
        page_cache_bytes=380 * MIB,
        kernel_bytes=20 * MIB,
        huge_bytes=256 * MIB,
        numa_bytes={"N0": 900 * MIB, "N1": 100 * MIB},
        processes=(ProcessMemory(pid=4242, name="python", pss_bytes=690 * MIB, rss_bytes=720 * MIB),),
        seen=2,
        unknown={"hugetlb_bytes": "no hugetlb controller"},
    ),
    gpus=FACTS,
    container=ContainerFacts(
        engine="docker",
        engine_version="20.10.24",
        id="0123456789abcdef",
        name="train",
        image="example/train:1",
        cpus=2.0,
        memory_bytes=GIB,
        network_mode="bridge",
        startup_s=0.412,
    ),
)


def gpu_samples(count: int = 60) -> list[Sample]:
    """One a second, the GPUs in every second one."""
    return [_sample(second) for second in range(count)]


def _sample(second: int) -> Sample:
    return Sample(
        at_us=START_US + second * 1_000_000,
        elapsed_us=second * 1_000_000,
        cpu_total_usec=second * 700_000,
        memory_anon_bytes=(100 + 10 * second) * MIB,
        memory_pss_bytes=(110 + 10 * second) * MIB,
        memory_huge_bytes=64 * MIB,
        instructions=second * 2_000_000_000,
        cycles=second * 1_600_000_000,
        cpu_migrations=second * 3,
        context_switches=second * 41,
        network_rx_bytes=second * 15 * MIB,
        network_tx_bytes=second * MIB // 4,
        network_rx_packets=second * 10_500,
        network_tx_packets=second * 4_000,
        network_tcp_rx_bytes=second * 15 * MIB,
        network_tcp_tx_bytes=second * MIB // 4,
        network_udp_rx_bytes=0,
        network_udp_tx_bytes=0,
        network_ipv6_rx_bytes=second * 512,
        network_ipv6_tx_bytes=second * 128,
        cpu_some_avg10=125,
        cpu_full_avg10=0,
        io_some_avg10=40,
        host_cpu_busy_usec=second * 1_400_000,
        host_cpu_total_usec=second * 8_000_000,
        host_energy_package_uj=second * 42_000_000,
        host_energy_dram_uj=second * 6_000_000,
        host_network_rx_bytes=second * 16 * MIB,
        host_network_tx_bytes=second * MIB,
        gpus=_gpus(second) if second % 2 == 0 else None,
        interfaces={
            "eth0": InterfaceIo(
                rx_bytes=second * 15 * MIB, tx_bytes=second * MIB // 4, rx_dropped=2 if second else 0
            )
        },
    )


def _gpus(second: int) -> dict[str, GpuReading]:
    return {
        "0000:00:02.0": GpuReading(
            job_processes=1, job_memory_bytes=96 * MIB, job_busy_usec=second * 120_000, sm_clock_mhz=1150
        ),
        "GPU-7f3a": GpuReading(
            utilization=7850,
            memory_utilization=3100,
            memory_used_bytes=round(3.2 * GIB),
            memory_free_bytes=round(12.8 * GIB),
            temperature_c=65,
            power_mw=45_200,
            energy_mj=second * 45_200,
            sm_clock_mhz=1590,
            memory_clock_mhz=5001,
            encoder_utilization=0,
            decoder_utilization=0,
            fan_speed=4200,
            ecc_corrected=0,
            ecc_uncorrected=0,
            pcie_rx_bytes_per_s=12 * MIB,
            pcie_tx_bytes_per_s=3 * MIB,
            pcie_generation=3,
            pcie_width=16,
            throttle_reasons=0x4,
            processes=2,
            processes_memory_bytes=3 * GIB,
            job_processes=1,
            job_memory_bytes=2 * GIB + second * MIB,
            job_utilization=6100,
            job_busy_usec=second * 610_000,
        ),
    }
