"""GPU, network, energy and container sections of a job and of one sample."""

from collections.abc import Mapping, Sequence

from joblens.analysis.numbers.gpu import busy_percent, gpus_used, has_part, spans_of, throttle_words
from joblens.analysis.numbers.rates import elapsed_usec, per_second
from joblens.model.jobs.details import ContainerFacts, GpuFacts
from joblens.model.jobs.sample import GpuReading, InterfaceIo, Sample
from joblens.model.values.units import counted, format_bytes, format_duration
from joblens.views.jobs.labels import SectionContext, heading, pairs, why_empty
from joblens.views.text.numbers import UNKNOWN, joules, rate, watts
from joblens.views.text.style import clean

Pairs = list[tuple[str, str]]


# ---- GPU ------------------------------------------------------------------------------------------------


def gpu_lines(sample: Sample, previous: Sample | None, facts: Sequence[GpuFacts]) -> list[str]:
    """Returns one block per device, in the order of their indexes."""
    known = {fact.id: fact for fact in facts}
    readings = sample.gpus or {}
    lines: list[str] = []
    for name in sorted(readings, key=lambda name: (known[name].index if name in known else 1 << 20, name)):
        before = None if previous is None else (previous.gpus or {}).get(name)
        seconds = 0.0 if previous is None else (elapsed_usec(previous, sample) or 0) / 1e6
        lines.append(f"  {gpu_title(name, known.get(name))}:")
        pairs = gpu_pairs(readings[name], before, seconds, known.get(name))
        lines += [f"    {label}: {value}" for label, value in pairs if value != UNKNOWN]
    return lines


def gpu_title(name: str, facts: GpuFacts | None) -> str:
    """Returns 'GPU 0 (Tesla T4)'."""
    if facts is None:
        return f"GPU {clean(name)}"
    part = "MIG " if facts.parent else "GPU "
    return f"{part}{facts.index} ({clean(facts.name)})" if facts.name else f"{part}{facts.index}"


def gpu_pairs(
    reading: GpuReading, before: GpuReading | None, seconds: float, facts: GpuFacts | None
) -> Pairs:
    temperature = UNKNOWN if reading.temperature_c is None else f"{reading.temperature_c:.1f}°C"
    energy = None if reading.energy_mj is None else reading.energy_mj * 1000
    return [
        ("Utilization", hundredths(reading.utilization)),
        ("Memory", gpu_memory(reading, facts)),
        ("Memory Traffic", hundredths(reading.memory_utilization)),
        ("Temperature", temperature),
        ("Power", gpu_power(reading, facts)),
        ("Energy", joules(energy)),
        ("Clocks", _clocks(reading, facts)),
        ("Throttled", gpu_throttling(reading)),
        (
            "Encoder/Decoder",
            _coders(reading.encoder_utilization, reading.decoder_utilization),
        ),
        ("Fan", hundredths(reading.fan_speed)),
        ("PCIe", _pcie(reading)),
        ("ECC Errors", _ecc(reading)),
        ("Processes", _processes(reading.processes, reading.processes_memory_bytes)),
        ("This Job", job_part(reading, before, seconds)),
    ]


def hundredths(share: int | None) -> str:
    return UNKNOWN if share is None else f"{share / 100:.1f}%"


def total_memory(reading: GpuReading, facts: GpuFacts | None) -> int | None:
    if facts is not None and facts.memory_total_bytes:
        return facts.memory_total_bytes
    if reading.memory_used_bytes is None or reading.memory_free_bytes is None:
        return None
    return reading.memory_used_bytes + reading.memory_free_bytes


def gpu_memory(reading: GpuReading, facts: GpuFacts | None) -> str:
    used, total = reading.memory_used_bytes, total_memory(reading, facts)
    if used is None or not total:
        return format_bytes(used)
    return f"{format_bytes(used)} / {format_bytes(total)} ({100 * used / total:.1f}%)"


def gpu_power(reading: GpuReading, facts: GpuFacts | None) -> str:
    if reading.power_mw is None:
        return UNKNOWN
    drawn = f"{reading.power_mw / 1000:.1f}W"
    limit = None if facts is None else facts.power_limit_mw
    return drawn if limit is None else f"{drawn} / {limit / 1000:.1f}W"


def gpu_throttling(reading: GpuReading) -> str:
    if reading.throttle_reasons is None:
        return UNKNOWN
    return ", ".join(throttle_words(reading.throttle_reasons)) or "no"


def job_part(reading: GpuReading, before: GpuReading | None, seconds: float) -> str:
    """Describes the job's share of the device."""
    if reading.job_processes == 0 and not has_part(reading):
        return "not used"
    busy = None if reading.job_utilization is None else reading.job_utilization / 100
    if busy is None and before is not None and before != reading:  # equal: not sampled since
        busy = busy_percent(before, reading, seconds) if reading.job_busy_usec is not None else None
    encoder, decoder = reading.job_encoder_utilization, reading.job_decoder_utilization
    parts = [
        "" if busy is None else f"{busy:.1f}% busy",
        "" if reading.job_memory_bytes is None else format_bytes(reading.job_memory_bytes),
        "" if reading.job_processes is None else counted(reading.job_processes, "process"),
        f"encoder/decoder {_coders(encoder, decoder)}" if encoder or decoder else "",
    ]
    return ", ".join(part for part in parts if part) or UNKNOWN


def _clocks(reading: GpuReading, facts: GpuFacts | None) -> str:
    core = "SM" if facts is None or facts.vendor == "nvidia" else "core"
    clocks = ((core, reading.sm_clock_mhz), ("memory", reading.memory_clock_mhz))
    return ", ".join(f"{name} {mhz} MHz" for name, mhz in clocks if mhz is not None) or UNKNOWN


def _coders(encoder: int | None, decoder: int | None) -> str:
    if encoder is None and decoder is None:
        return UNKNOWN
    return f"{hundredths(encoder)} / {hundredths(decoder)}"


def _pcie(reading: GpuReading) -> str:
    link = ""
    if reading.pcie_generation is not None and reading.pcie_width is not None:
        link = f"generation {reading.pcie_generation} x{reading.pcie_width}"
    rates = [
        f"{rate(value)} {word}"
        for value, word in ((reading.pcie_rx_bytes_per_s, "in"), (reading.pcie_tx_bytes_per_s, "out"))
        if value is not None
    ]
    return ", ".join([*rates, link] if link else rates) or UNKNOWN


def _ecc(reading: GpuReading) -> str:
    kinds = ((reading.ecc_corrected, "corrected"), (reading.ecc_uncorrected, "uncorrected"))
    return ", ".join(f"{count} {word}" for count, word in kinds if count is not None) or UNKNOWN


def _processes(count: int | None, memory: int | None) -> str:
    if count is None:
        return UNKNOWN
    return str(count) if memory is None else f"{count} ({format_bytes(memory)})"


# ---- network --------------------------------------------------------------------------------------------


def network_pairs(sample: Sample, previous: Sample | None) -> Pairs:
    pairs: Pairs = []
    for title, way in (("RX", "rx"), ("TX", "tx")):
        if previous is not None:
            packets = per_second(previous, sample, f"network_{way}_packets")
            speed = rate(per_second(previous, sample, f"network_{way}_bytes"))
            pairs.append((title, speed if packets is None else f"{speed} ({packets:.0f} packets/s)"))
    for title, way in (("Total RX", "rx"), ("Total TX", "tx")):
        count: int | None = getattr(sample, f"network_{way}_packets")
        total = format_bytes(getattr(sample, f"network_{way}_bytes"))
        pairs.append((title, total if count is None else f"{total} ({counted(count, 'packet')})"))
    return [
        *pairs,
        ("TCP", _both(sample.network_tcp_rx_bytes, sample.network_tcp_tx_bytes)),
        ("UDP", _both(sample.network_udp_rx_bytes, sample.network_udp_tx_bytes)),
        ("IPv6", _both(sample.network_ipv6_rx_bytes, sample.network_ipv6_tx_bytes)),
        *_interfaces(sample.interfaces or {}),
    ]


def _both(received: int | None, sent: int | None) -> str:
    """Returns '-' for kinds of traffic that did not occur."""
    if not received and not sent:
        return UNKNOWN
    return f"{format_bytes(received)} received, {format_bytes(sent)} sent"


def _interfaces(interfaces: Mapping[str, InterfaceIo]) -> Pairs:
    return [(f"Interface {clean(name)}", _interface(io)) for name, io in sorted(interfaces.items())]


def _interface(io: InterfaceIo) -> str:
    errors = f"{io.rx_errors + io.tx_errors} errors, {io.rx_dropped + io.tx_dropped} dropped"
    return f"{format_bytes(io.rx_bytes)} received, {format_bytes(io.tx_bytes)} sent, {errors}"


# ---- energy ---------------------------------------------------------------------------------------------


def energy_pairs(sample: Sample, previous: Sample | None) -> Pairs:
    """Returns the power of the machine's processors, and the job's share since the previous sample."""
    package, dram = sample.host_energy_package_uj, sample.host_energy_dram_uj
    if package is None and dram is None:
        return []
    own_package = own_dram = None
    if previous is not None:
        from joblens.analysis.numbers.attribution import energy_shares

        seconds = (elapsed_usec(previous, sample) or 0) / 1e6
        shares = energy_shares([previous, sample])
        if seconds > 0:
            own_package = None if shares.package_uj is None else shares.package_uj / seconds
            own_dram = None if shares.dram_uj is None else shares.dram_uj / seconds
    return [
        ("This Job", _watts_of(own_package, own_dram)),
        ("Processors", _drawn(sample, previous, "host_energy_package_uj")),
        ("Memory", _drawn(sample, previous, "host_energy_dram_uj")),
    ]


def _watts_of(package: float | None, dram: float | None) -> str:
    if package is None and dram is None:
        return UNKNOWN
    parts = [f"{watts(package)} of the processors" if package is not None else ""]
    parts.append(f"{watts(dram)} of the memory" if dram is not None else "")
    return ", ".join(part for part in parts if part)


def _drawn(sample: Sample, previous: Sample | None, counter: str) -> str:
    total: int | None = getattr(sample, counter)
    if total is None:
        return UNKNOWN
    power = None if previous is None else per_second(previous, sample, counter)
    since = f"{joules(total)} since the job's start (whole machine)"
    return since if power is None else f"{watts(power)}, {since}"


def gpu_section(context: SectionContext) -> list[str]:
    facts = {fact.id: fact for fact in context.details.gpus or ()}
    used = gpus_used(context.samples)
    if not used:
        has_gpu_samples = any(sample.gpus is not None for sample in context.samples)
        lines = [heading("GPU", context)]
        return [*lines, "  not used"] if has_gpu_samples else [*lines, *_why_nothing(context)]
    lines = []
    for name in sorted(used, key=lambda name: (facts[name].index if name in facts else 1 << 20, name)):
        lines += [*([""] if lines else []), heading(gpu_title(name, facts.get(name)), context)]
        lines += pairs([*_gpu_facts(name, facts.get(name)), *_gpu_use(name, context.samples)], context.paint)
        lines += _last_reading(name, facts.get(name), context)
    return lines


def _why_nothing(context: SectionContext) -> list[str]:
    return why_empty("gpu", context, "gpus", "gpu_facts", number="gpu_memory_peak_bytes")


def _gpu_facts(name: str, facts: GpuFacts | None) -> list[tuple[str, str]]:
    if facts is None:
        return [("device", clean(name))]
    return [
        ("device", clean(facts.uuid or facts.pci or facts.id)),
        ("bus address", clean(facts.pci) if facts.uuid else ""),
        ("driver", clean(" ".join(word for word in (facts.driver, facts.driver_version) if word))),
        ("compute", clean(facts.compute_capability)),
        ("compute mode", clean(facts.compute_mode)),
        ("part of", clean(facts.parent)),
    ]


def _gpu_use(name: str, samples: Sequence[Sample]) -> list[tuple[str, str]]:
    """Describes the job's use of the device."""
    readings = [sample.gpus[name] for sample in samples if sample.gpus and name in sample.gpus]
    memory = [reading.job_memory_bytes for reading in readings if reading.job_memory_bytes is not None]
    spans = [span for span in spans_of(samples, name) if span.busy_percent is not None]
    whole_s = sum(span.seconds for span in spans)
    busy_s = sum(span.seconds * (span.busy_percent or 0.0) / 100 for span in spans)
    powers = [reading.power_mw for reading in readings if reading.power_mw is not None]
    energy = [reading.energy_mj for reading in readings if reading.energy_mj is not None]
    drawn = f"{sum(powers) / len(powers) / 1000:.1f}W on average" if powers else ""
    if energy:
        drawn += f"{', ' if drawn else ''}{joules(energy[-1] * 1000)} (whole device)"
    return [
        ("job's memory", f"at most {format_bytes(max(memory))}" if memory else ""),
        (
            "job's use",
            f"{100 * busy_s / whole_s:.1f}% of {format_duration(whole_s)}" if whole_s > 0 else "",
        ),
        ("power", drawn),
    ]


def _last_reading(name: str, facts: GpuFacts | None, context: SectionContext) -> list[str]:
    reading = next(
        sample.gpus[name] for sample in reversed(context.samples) if sample.gpus and name in sample.gpus
    )
    read = [(_plain(label), value) for label, value in gpu_pairs(reading, None, 0.0, facts)]
    shown = pairs([pair for pair in read if pair[0] != "energy"], context.paint)
    return ["  at the last sample:", *(f"  {line}" for line in shown)]


def _plain(label: str) -> str:
    return label if label[:2].isupper() else label.lower()


# ---- container ------------------------------------------------------------------------------------------


def container_pairs(facts: ContainerFacts) -> list[tuple[str, str]]:
    """Returns the fields for the default view of a job in a container."""
    limits = [
        counted(facts.cpus, "CPU") if facts.cpus is not None else "",
        f"CPUs {facts.cpu_list}" if facts.cpu_list else "",
        f"{format_bytes(facts.memory_bytes)} memory" if facts.memory_bytes is not None else "",
        f"{facts.pids} processes" if facts.pids is not None else "",
    ]
    return [
        ("image", clean(facts.image)),
        ("image id", clean(facts.image_id)),
        ("container", clean(f"{facts.name} {facts.id[:12]}".strip())),
        ("engine", clean(f"{facts.engine} {facts.engine_version}".strip())),
        ("limits", ", ".join(limit for limit in limits if limit)),
        ("volumes", clean(", ".join(facts.volumes))),
        ("devices", clean(", ".join(facts.devices))),
        ("network", clean(facts.network_mode)),
        ("start-up", format_duration(facts.startup_s) if facts.startup_s is not None else ""),
        *((f"{who} overhead", _overhead(who, facts.overhead)) for who in ("helper", "engine", "client")),
    ]


def _overhead(who: str, used: Mapping[str, float]) -> str:
    """Returns the resources that the engine and joblens used for the container."""
    cpu_s = used.get(f"{who}_cpu_s")
    sizes = {
        word: used.get(f"{who}_{name}_bytes")
        for name, word in (("memory", "memory"), ("io_read", "read"), ("io_write", "written"))
    }
    parts = [f"CPU {format_duration(cpu_s)}" if cpu_s is not None else ""]
    parts += [f"{format_bytes(round(size))} {word}" for word, size in sizes.items() if size is not None]
    return ", ".join(part for part in parts if part)
