"""Doctor: table of capabilities by area.
Gaps with the same reason share an entry. A fix is shown once; other gaps refer to the first. Commands in a
fix are printed in full, for copying.
"""

from collections.abc import Iterable, Sequence

from joblens.model.capabilities import Capability, Way
from joblens.views.text.style import Palette, clean, pad, wrap

_NAME = 26
_BODY = " " * (_NAME + 5)
_COMMAND = " " * 6
_LABELS = {"memory": "memory with page cache", "memory_parts": "memory without page cache"}


def render_doctor(capabilities: Sequence[Capability], *, width: int, paint: Palette) -> list[str]:
    lines: list[str] = []
    printed: set[str] = set()
    fixes: dict[str, str] = {}  # fix -> name of the capability
    for area in dict.fromkeys(capability.area for capability in capabilities):
        lines += [*([""] if lines else []), paint.paint(area.capitalize(), "bold")]
        for alike in _together(capability for capability in capabilities if capability.area == area):
            lines += _entry(alike, printed, fixes, width, paint)
            printed.add(alike[0].reason)
    return [*lines, "", *_verdict(capabilities)]


def _together(capabilities: Iterable[Capability]) -> list[list[Capability]]:
    """Groups gaps with the same reason and fix, at the position of the first."""
    found: list[list[Capability]] = []
    gaps: dict[tuple[str, str], list[Capability]] = {}
    for capability in capabilities:
        alike = [capability]
        if capability.is_gap:
            alike = gaps.setdefault((capability.reason, capability.fix), [])
            alike.append(capability)
        if len(alike) == 1:
            found.append(alike)
    return found


def _entry(
    alike: list[Capability], printed: set[str], fixes: dict[str, str], width: int, paint: Palette
) -> list[str]:
    first = alike[0]
    names = ", ".join(_label(capability) for capability in alike)
    texts = [first.mechanism] if first.available else []
    if not first.available or first.reason not in printed:
        texts += [first.reason, _fix(first, fixes)]
    body: list[str] = []
    for text in filter(None, texts):
        prose, *commands = text.split("\n")
        lines = [*wrap(clean(prose), width, _BODY), *(f"{_COMMAND}{clean(line)}" for line in commands)]
        body += [paint.paint(line, "yellow") for line in lines] if text.startswith("→") else lines
    if len(names) > _NAME:
        head, *more = wrap(names, width, "    ")
        return [f"  {_mark(first, paint)} {head.lstrip()}", *more, *body]
    beside = body[0].removeprefix(_BODY) if body and body[0].startswith(_BODY) else ""
    return [f"  {_mark(first, paint)} {pad(names, _NAME)} {beside}".rstrip(), *(body[1:] if beside else body)]


def _fix(capability: Capability, fixes: dict[str, str]) -> str:
    fix = capability.fix
    if not fix:
        return ""
    if fix in fixes:
        return f"→ as for {fixes[fix]}"
    fixes[fix] = _label(capability)
    return f"→ {fix}"


def _label(capability: Capability) -> str:
    label = _LABELS.get(capability.name) if capability.area == "numbers" else None
    return label or capability.name.replace("_", " ")


def _mark(capability: Capability, paint: Palette) -> str:
    if not capability.applies:
        return paint.paint("·", "dim")
    return paint.paint("✓", "green") if capability.available else paint.paint("✗", "red")


def _verdict(capabilities: Sequence[Capability]) -> list[str]:
    """Returns the summary, which comes last because a long list scrolls."""
    applying = [capability for capability in capabilities if capability.applies]
    gaps = sum(capability.is_gap for capability in applying)
    accounting = (capability for capability in applying if capability.area == "accounting")
    measured_by = next((capability.name for capability in accounting if capability.available), "")
    lines = [f"Jobs are measured by {measured_by}."] if measured_by else []
    if any(capability.way is Way.NONE for capability in applying):
        lines = ["Jobs cannot start here."]
    if gaps:
        return [*lines, f"{gaps} of {len(applying)} are not available; → shows how to enable them."]
    return [*lines, "Everything is available."]
