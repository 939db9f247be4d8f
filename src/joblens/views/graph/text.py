"""A workflow's graph in lines: one a box, stage by stage, with what it waits for. Mermaid too."""

from joblens.model.runs.run import JobState
from joblens.views.graph.drawing import Box, Drawing
from joblens.views.text.numbers import counted
from joblens.views.text.style import PLAIN, Palette, clean, fit, pad, visible_width

_MOST_NEEDED = 4
_TIMES = "\N{MULTIPLICATION SIGN}"
_LONGEST_TITLE = 40
STATE_STYLES = {
    JobState.RUNNING: "cyan",
    JobState.PENDING: "cyan",
    JobState.COMPLETED: "green",
    JobState.FAILED: "red",
    JobState.PENDING_FAILED: "red",
    JobState.CANCELED: "magenta",
    JobState.TERMINATED: "yellow",
    JobState.DISABLED: "dim",
}
# Fill and edge, light enough for black text.
STATE_COLOURS = {
    JobState.UNINITIALIZED: ("#f1f3f5", "#868e96"),
    JobState.BLOCKED: ("#f1f3f5", "#868e96"),
    JobState.READY: ("#fff3bf", "#f08c00"),
    JobState.PENDING: ("#d0ebff", "#1971c2"),
    JobState.RUNNING: ("#a5d8ff", "#1971c2"),
    JobState.COMPLETED: ("#b2f2bb", "#2f9e44"),
    JobState.FAILED: ("#ffc9c9", "#e03131"),
    JobState.CANCELED: ("#eebefa", "#9c36b5"),
    JobState.TERMINATED: ("#ffd8a8", "#e8590c"),
    JobState.DISABLED: ("#ffffff", "#ced4da"),
    JobState.PENDING_FAILED: ("#ffc9c9", "#e03131"),
}
# What a box of many jobs is coloured by: the first of these that any of its jobs is in.
LOUDEST = (
    JobState.FAILED,
    JobState.PENDING_FAILED,
    JobState.TERMINATED,
    JobState.RUNNING,
    JobState.PENDING,
    JobState.CANCELED,
    JobState.READY,
    JobState.BLOCKED,
    JobState.UNINITIALIZED,
    JobState.COMPLETED,
    JobState.DISABLED,
)


def state_shown(box: Box) -> JobState | None:
    return next((state for state in LOUDEST if box.states.get(state)), None)


def title_of(box: Box) -> str:
    return f"{clean(box.title)} {_TIMES}{box.jobs:,}" if box.jobs > 1 else clean(box.title)


def render_graph(drawing: Drawing, width: int, paint: Palette = PLAIN) -> list[str]:
    lines = [
        f"{clean(drawing.name)}: {counted(drawing.jobs, 'job')} in {counted(drawing.stages, 'stage')}",
        "",
    ]
    needs: dict[int, list[str]] = {}
    for arrow in drawing.arrows:
        source = drawing.boxes[arrow.source]
        part = f" ({arrow.jobs:,} of {source.jobs:,})" if arrow.jobs < source.jobs else ""
        needs.setdefault(arrow.target, []).append(clean(source.title) + part)
    titles = [fit(title_of(box), _LONGEST_TITLE) for box in drawing.boxes]
    title_width = max((visible_width(title) for title in titles), default=0)
    number_width = len(str(drawing.stages))
    stage = -1
    for place, box in enumerate(drawing.boxes):
        if box.stage != stage:
            lines += _actions(drawing, stage, number_width, width)
        number = str(box.stage + 1) if box.stage != stage else ""
        stage = box.stage
        state = state_shown(box)
        title = pad(titles[place], title_width)
        shown = paint.paint(title, STATE_STYLES[state]) if state in STATE_STYLES else title
        rest = "  ".join(part for part in (_states(box), _needs(needs.get(place, []))) if part)
        room = max(width - number_width - title_width - 4, 20)
        lines.append(f"{number:>{number_width}}  {shown}  {fit(rest, room)}".rstrip())
    last = max([stage, *(one.stage for one in drawing.actions)])
    for each in range(stage, last + 1):
        lines += _actions(drawing, each, number_width, width, is_alone=each > stage)
    return lines


def _actions(
    drawing: Drawing, stage: int, number_width: int, width: int, *, is_alone: bool = False
) -> list[str]:
    """Below the jobs of their stage; those after the last job are alone in theirs."""
    texts = [f"action {one.number}: {one.text}" for one in drawing.actions if one.stage == stage]
    numbers = [str(stage + 1) if is_alone and not place else "" for place in range(len(texts))]
    room = max(width - number_width - 2, 20)
    return [
        f"{number:>{number_width}}  {fit(text, room)}" for number, text in zip(numbers, texts, strict=True)
    ]


def _states(box: Box) -> str:
    if box.jobs == 1:
        return next((state.label for state in box.states), "")
    return ", ".join(f"{count:,} {state.label}" for state, count in box.states.items())


def _needs(names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NEEDED:,} more" if len(names) > _MOST_NEEDED else ""
    return f"← {', '.join(names[:_MOST_NEEDED])}{more}"


def render_mermaid(drawing: Drawing) -> list[str]:
    lines = ["flowchart LR"]
    used: dict[JobState, None] = {}
    for place, box in enumerate(drawing.boxes):
        state = state_shown(box)
        suffix = f":::{state.label}" if state is not None else ""
        if state is not None:
            used[state] = None
        lines.append(f'  n{place}["{_mermaid_text(title_of(box))}"]{suffix}')
    lines += [f"  n{arrow.source} --> n{arrow.target}" for arrow in drawing.arrows]
    for state in used:
        fill, edge = STATE_COLOURS[state]
        lines.append(f"  classDef {state.label} fill:{fill},stroke:{edge},color:#000")
    return lines


def _mermaid_text(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("#", "&num;")
