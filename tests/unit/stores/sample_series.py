"""Samples such as a busy job gives: noisy counters, levels that wander, much that never changes."""

import random
from typing import Any

from msgspec.structs import replace

from joblens.model.jobs.sample import DeviceIo, GpuReading, InterfaceIo, Sample

_PAGE = 4096
_WINDOWS = ("avg10", "avg60", "avg300")


class _Machine:
    """Counters that grow the way a kernel's do."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counters: dict[str, int] = {}

    def grown(self, name: str, by: float) -> int:
        self.counters[name] = self.counters.get(name, 0) + max(0, int(by))
        return self.counters[name]

    def wandered(self, name: str, start: int, low: int, high: int) -> int:
        step = self.random.randint(low, high) * _PAGE
        self.counters[name] = max(0, self.counters.get(name, start) + step)
        return self.counters[name]


def busy_series(count: int, *, seed: int = 1, interval_us: int = 1_000_000) -> list[Sample]:
    machine = _Machine(seed)
    samples, elapsed_us = [], 0
    for index in range(count):
        step_us = interval_us + machine.random.randint(-300, 900) if index else 0
        elapsed_us += step_us
        samples.append(_sample(machine, elapsed_us, step_us))
    return samples


def _sample(machine: _Machine, elapsed_us: int, step_us: int) -> Sample:
    chance = machine.random
    user = machine.grown("user", step_us * chance.gauss(0.9, 0.05))
    system = machine.grown("system", step_us * abs(chance.gauss(0.05, 0.02)))
    anon = machine.wandered("anon", 200 << 20, -20, 30)
    file = machine.wandered("file", 50 << 20, 0, 20)
    read = machine.grown("read", chance.choice([0, 0, 0, chance.randint(0, 100) * _PAGE]))
    written = machine.grown("written", chance.choice([0, 0, chance.randint(0, 400) * _PAGE]))
    device = DeviceIo(
        read_bytes=read, write_bytes=written, read_ops=read // 16384, write_ops=written // 16384
    )
    return Sample(
        at_us=1_763_000_000_000_000 + elapsed_us,
        elapsed_us=elapsed_us,
        cpu_total_usec=user + system,
        cpu_user_usec=user,
        cpu_system_usec=system,
        cpu_periods=0,
        cpu_throttled_periods=0,
        cpu_throttled_usec=0,
        memory_current_bytes=anon + file + 3_000_000,
        memory_kernel_peak_bytes=anon + file + 4_000_000,
        memory_largest_process_bytes=anon,
        memory_anon_bytes=anon,
        memory_file_bytes=file,
        memory_kernel_bytes=3_000_000 + chance.randint(0, 5) * _PAGE,
        memory_shmem_bytes=0,
        memory_swap_bytes=0,
        memory_virtual_bytes=2 << 30,
        memory_kernel_stack_bytes=65536,
        memory_slab_bytes=2_000_000 + chance.randint(0, 9) * 512,
        memory_sock_bytes=0,
        memory_file_mapped_bytes=10 << 20,
        memory_file_dirty_bytes=chance.randint(0, 100) * _PAGE,
        memory_file_writeback_bytes=0,
        memory_limit_bytes=4 << 30,
        faults_minor=machine.grown("faults", chance.randint(0, 500)),
        faults_major=3,
        oom_events=0,
        oom_kills=0,
        io_read_bytes=read,
        io_write_bytes=written,
        io_read_ops=read // 16384,
        io_write_ops=written // 16384,
        io_call_read_bytes=machine.grown("call read", chance.randint(0, 100_000)),
        io_call_write_bytes=machine.grown("call written", chance.randint(0, 200_000)),
        io_call_reads=machine.grown("reads", chance.randint(0, 40)),
        io_call_writes=machine.grown("writes", chance.randint(0, 80)),
        processes=4,
        threads=12,
        open_files=45 + chance.randint(0, 2),
        open_files_limit=1024,
        pids_limit=100,
        pids_limit_events=0,
        host_cpu_busy_usec=machine.grown("host busy", step_us * chance.gauss(1.2, 0.2)),
        host_cpu_total_usec=machine.grown("host total", step_us * 2),
        host_memory_used_bytes=(8 << 30) + chance.randint(-9999, 9999) * _PAGE,
        host_memory_total_bytes=16 << 30,
        host_load1=100 + chance.randint(0, 30),
        host_load5=110 + chance.randint(0, 3),
        host_load15=105,
        devices={"8:0": device},
        **_pressure(machine),
    )


def _pressure(machine: _Machine) -> dict[str, Any]:
    chance, fields = machine.random, {}
    for resource in ("cpu", "memory", "io"):
        for kind in ("some", "full"):
            busy = (resource, kind) == ("cpu", "some") or (resource == "io" and chance.random() < 0.3)
            name = f"{resource}_{kind}"
            fields[f"{name}_usec"] = machine.grown(name, chance.randint(0, 20_000) if busy else 0)
            for window in _WINDOWS:
                fields[f"{name}_{window}"] = chance.randint(0, 150) if busy and window == "avg10" else 0
    return fields


def gpu_series(count: int, *, gpus: int = 1, seed: int = 1) -> list[Sample]:
    """The same with GPUs that are busy, a network, and a container's interface."""
    machine = _Machine(seed)
    return [
        replace(
            sample,
            gpus={f"GPU-{number:08x}-1b2c": _gpu(machine, number) for number in range(gpus)},
            interfaces={"eth0": _interface(machine)},
            **_network(machine),
        )
        for sample in busy_series(count, seed=seed)
    ]


def _gpu(machine: _Machine, number: int) -> GpuReading:
    chance = machine.random
    power = chance.randint(330_000, 340_000)
    used = (40 << 30) + (chance.randint(0, 3) << 21)
    return GpuReading(
        utilization=chance.randint(92, 100) * 100,
        memory_utilization=chance.randint(40, 55) * 100,
        memory_used_bytes=used,
        memory_free_bytes=(140 << 30) - used,
        temperature_c=chance.randint(52, 55),
        power_mw=power,
        energy_mj=machine.grown(f"energy {number}", power),
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
        encoder_utilization=0,
        decoder_utilization=0,
        ecc_corrected=0,
        ecc_uncorrected=0,
        pcie_rx_bytes_per_s=chance.randint(0, 900) * 1024,
        pcie_tx_bytes_per_s=chance.randint(0, 500) * 1024,
        pcie_generation=5,
        pcie_width=16,
        throttle_reasons=0,
        processes=2,
        processes_memory_bytes=used - (600 << 20),
        job_processes=1,
        job_memory_bytes=20 << 30,
        job_utilization=chance.randint(40, 60) * 100,
        job_busy_usec=machine.grown(f"busy {number}", chance.randint(400_000, 600_000)),
    )


def _interface(machine: _Machine) -> InterfaceIo:
    received = machine.grown("eth0 received", machine.random.randint(0, 1 << 20))
    return InterfaceIo(rx_bytes=received, tx_bytes=received // 50, rx_packets=received // 1400)


def _network(machine: _Machine) -> dict[str, int]:
    chance = machine.random
    fields: dict[str, int] = {}
    for way in ("rx", "tx"):
        tcp = machine.grown(f"tcp {way}", chance.randint(0, 1 << 20))
        udp = machine.grown(f"udp {way}", chance.choice([0, 0, 0, chance.randint(60, 900)]))
        fields[f"network_{way}_bytes"] = tcp + udp
        fields[f"network_{way}_packets"] = tcp // 1400
        fields[f"network_tcp_{way}_bytes"] = tcp
        fields[f"network_udp_{way}_bytes"] = udp
        fields[f"network_ipv6_{way}_bytes"] = 0
    return fields
