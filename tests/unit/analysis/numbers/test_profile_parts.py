from joblens.analysis.numbers.profile import detailed_profile
from joblens.model.jobs.details import Details, GpuFacts, ThreadTable, ThreadUse
from joblens.model.jobs.job import Usage
from joblens.model.jobs.sample import GpuReading, Sample
from joblens.model.values.units import GIB, MIB
from tests.builders.records import a_sample


def with_gpus(second: int, **gpus: GpuReading) -> Sample:
    return a_sample(float(second), gpus={name.replace("_", "-"): reading for name, reading in gpus.items()})


def a_reading(utilization: int, used_bytes: int, temperature_c: int = 40) -> GpuReading:
    return GpuReading(
        utilization=utilization,
        memory_utilization=utilization // 2,
        memory_used_bytes=used_bytes,
        memory_free_bytes=8 * GIB - used_bytes,
        temperature_c=temperature_c,
    )


def facts(ident: str, vendor: str, index: int = 0) -> GpuFacts:
    return GpuFacts(
        id=ident, vendor=vendor, index=index, name=f"{vendor} {index}", memory_total_bytes=8 * GIB
    )


def test_an_nvidia_gpu_has_the_five_numbers_of_the_form() -> None:
    samples = [with_gpus(0, GPU_a=a_reading(8000, GIB, 60)), with_gpus(1, GPU_a=a_reading(9000, 2 * GIB, 68))]
    nvidia = detailed_profile(samples, Usage(), 1.0)["gpu_stats"]["nvidia"]
    assert list(nvidia)[:5] == [
        "gpu_utilization_percent",
        "memory_utilization_percent",
        "memory_used_mb",
        "memory_total_mb",
        "temperature_celsius",
    ]
    assert 80 <= nvidia["gpu_utilization_percent"] <= 90
    assert (nvidia["memory_used_mb"], nvidia["memory_total_mb"]) == (2048.0, 8192.0)
    assert nvidia["temperature_celsius"] == 68.0


def test_several_gpus_of_one_maker_are_added_up_and_stand_apart() -> None:
    both = {"GPU_a": a_reading(2000, GIB), "GPU_b": a_reading(6000, 3 * GIB, 71)}
    details = Details(gpus=(facts("GPU-b", "nvidia", 0), facts("GPU-a", "nvidia", 1)))
    profile = detailed_profile([with_gpus(0, **both), with_gpus(1, **both)], Usage(), 1.0, details=details)
    nvidia = profile["gpu_stats"]["nvidia"]
    assert nvidia["gpu_utilization_percent"] == 40.0
    assert nvidia["memory_used_mb"] == 4 * 1024
    assert nvidia["memory_total_mb"] == 16 * 1024
    assert nvidia["temperature_celsius"] == 71.0
    assert [device["id"] for device in nvidia["devices"]] == ["GPU-b", "GPU-a"]


def test_an_intel_gpu_has_its_render_time() -> None:
    samples = [a_sample(float(second), gpus={"0000:00:02.0": a_reading(4520, 0)}) for second in (0, 1)]
    details = Details(gpus=(facts("0000:00:02.0", "intel"),))
    intel = detailed_profile(samples, Usage(), 1.0, details=details)["gpu_stats"]["intel"]
    assert list(intel)[:2] == ["render_busy_percent", "available"]
    assert (intel["render_busy_percent"], intel["available"]) == (45.2, True)


def test_looking_and_finding_no_gpu_is_not_having_one() -> None:
    assert detailed_profile([with_gpus(0), with_gpus(1)], Usage(), 1.0)["gpu_stats"] == {}


def test_network_is_the_jobs_and_beside_it_the_machines() -> None:
    samples = [
        a_sample(
            float(second), network_rx_bytes=second * MIB, host_network_rx_bytes=7 * MIB + second * 3 * MIB
        )
        for second in range(3)
    ]
    usage = Usage(network_rx_bytes=2 * MIB, network_tx_bytes=MIB, network_rx_packets=9)
    network = detailed_profile(samples, usage, 2.0)["network_io"]
    assert (network["received_mb"], network["sent_mb"], network["total_mb"]) == (2.0, 1.0, 3.0)
    assert (network["received_packets"], network["sent_packets"]) == (9, None)
    assert network["max_received_mb_per_second"] == 1.0
    assert (network["host_received_mb"], network["host_sent_mb"]) == (6.0, None)


def test_energy_adds_up_what_is_known() -> None:
    usage = Usage(energy_package_uj=3_000_000, gpu_energy_uj=5_000_000, co2_mg=250)
    energy = detailed_profile([], usage, 4.0)["energy"]
    assert (energy["cpu_joules"], energy["dram_joules"], energy["gpu_joules"]) == (3.0, None, 5.0)
    assert (energy["total_joules"], energy["mean_watts"], energy["co2_grams"]) == (8.0, 2.0, 0.25)
    assert detailed_profile([], Usage(), 4.0)["energy"]["total_joules"] is None


def test_threads_are_the_hottest_few() -> None:
    hot = tuple(ThreadUse(pid=1, tid=tid, name=f"t{tid}", cpu_usec=10_000_000 - tid) for tid in range(9))
    table = ThreadTable(at_us=1, threads=hot, seen=9, wait_usec=500_000, migrations=3)
    threads = detailed_profile([], Usage(threads_peak=4), 1.0, details=Details(threads=table))["threads"]
    assert (threads["max_count"], threads["seen"], threads["migrations"]) == (4, 9, 3)
    assert threads["run_queue_wait_seconds"] == 0.5
    assert [thread["name"] for thread in threads["hottest"]] == ["t0", "t1", "t2", "t3", "t4"]
    assert detailed_profile([], Usage(), 1.0)["threads"]["hottest"] is None


def test_counts_of_io_are_those_on_devices_and_else_those_of_calls() -> None:
    calls = Usage(io_call_reads=7, io_call_writes=8)
    assert detailed_profile([], calls, 1.0)["io_stats"]["read_count"] == 7
    both = Usage(io_call_reads=7, io_call_writes=8, io_read_ops=1, io_write_ops=0)
    stats = detailed_profile([], both, 1.0)["io_stats"]
    assert (stats["read_count"], stats["write_count"], stats["call_write_count"]) == (1, 0, 8)
