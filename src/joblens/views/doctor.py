"""The matrix of what joblens can do here, by area."""

from collections.abc import Sequence

from joblens.model.capability import Capability
from joblens.views.style import Palette, clean, pad, wrap

_NAME = 26


def render_doctor(capabilities: Sequence[Capability], *, width: int, paint: Palette) -> list[str]:
    lines: list[str] = []
    for area in dict.fromkeys(capability.area for capability in capabilities):
        lines += [*([""] if lines else []), paint.paint(area.capitalize(), "bold")]
        for capability in capabilities:
            if capability.area == area:
                lines += _entry(capability, width, paint)
    missing = sum(not capability.available for capability in capabilities)
    verdict = (
        "Everything is available." if not missing else f"{missing} of {len(capabilities)} are not available."
    )
    return [*lines, "", verdict]


def _entry(capability: Capability, width: int, paint: Palette) -> list[str]:
    mark = paint.paint("✓", "green") if capability.available else paint.paint("✗", "red")
    body = " " * (_NAME + 5)
    texts = [capability.mechanism, capability.reason] if capability.available else [capability.reason]
    told = [line for text in texts if text for line in wrap(clean(text), width, body)]
    if capability.fix:
        told += [paint.paint(line, "yellow") for line in wrap(f"→ {clean(capability.fix)}", width, body)]
    first = told[0][len(body) :] if told and told[0].startswith(body) else ""
    head = f"  {mark} {pad(capability.name.replace('_', ' '), _NAME)} {first}".rstrip()
    return [head, *(told[1:] if first else told)]
