"""GPUs and the container of one job: the device itself, what the job made of it, how it was last seen."""

from collections.abc import Mapping, Sequence

from joblens.analysis.numbers.gpu_use import gpus_used, spans_of
from joblens.model.jobs.details import ContainerFacts, GpuFacts
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import format_bytes, format_duration
from joblens.views.jobs.detail_look import Look, heading, nothing, pairs
from joblens.views.jobs.device_groups import gpu_pairs, gpu_title
from joblens.views.text.numbers import joules
from joblens.views.text.style import clean


def gpu_section(look: Look) -> list[str]:
    facts = {fact.id: fact for fact in look.details.gpus or ()}
    used = gpus_used(look.samples)
    if not used:
        looked = any(sample.gpus is not None for sample in look.samples)
        lines = [heading("GPU", look)]
        return [*lines, "  it used none"] if looked else [*lines, *_why_nothing(look)]
    lines = []
    for name in sorted(used, key=lambda name: (facts[name].index if name in facts else 1 << 20, name)):
        lines += [*([""] if lines else []), heading(gpu_title(name, facts.get(name)), look)]
        lines += pairs([*_gpu_facts(name, facts.get(name)), *_gpu_use(name, look.samples)], look)
        lines += _last_reading(name, facts.get(name), look)
    return lines


def _why_nothing(look: Look) -> list[str]:
    return nothing("gpu", look, "gpus", "gpu_facts", number="gpu_memory_peak_bytes")


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
    """What the job made of it."""
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
            "job's work",
            f"{100 * busy_s / whole_s:.1f}% of {format_duration(whole_s)}" if whole_s > 0 else "",
        ),
        ("power", drawn),
    ]


def _last_reading(name: str, facts: GpuFacts | None, look: Look) -> list[str]:
    reading = next(
        sample.gpus[name] for sample in reversed(look.samples) if sample.gpus and name in sample.gpus
    )
    read = [(_plain(label), value) for label, value in gpu_pairs(reading, None, 0.0, facts)]
    shown = pairs([pair for pair in read if pair[0] != "energy"], look)
    return ["  at the last look:", *(f"  {line}" for line in shown)]


def _plain(label: str) -> str:
    return label if label[:2].isupper() else label.lower()


# ---- container ------------------------------------------------------------------------------------------


def container_pairs(facts: ContainerFacts) -> list[tuple[str, str]]:
    """For the ordinary view of a job that ran in one."""
    limits = [
        f"{facts.cpus:g} CPUs" if facts.cpus is not None else "",
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
        *((f"its {who}", _overhead(who, facts.overhead)) for who in ("helper", "engine", "client")),
    ]


def _overhead(who: str, used: Mapping[str, float]) -> str:
    """What the engine's own processes, and ours beside it, used for the container."""
    cpu_s = used.get(f"{who}_cpu_s")
    sizes = {
        word: used.get(f"{who}_{name}_bytes")
        for name, word in (("memory", "memory"), ("io_read", "read"), ("io_write", "written"))
    }
    parts = [f"CPU {format_duration(cpu_s)}" if cpu_s is not None else ""]
    parts += [f"{format_bytes(round(size))} {word}" for word, size in sizes.items() if size is not None]
    return ", ".join(part for part in parts if part)
