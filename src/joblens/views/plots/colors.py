"""Colours that stay apart for people who do not see all of them (the palette of Okabe and Ito)."""

from joblens.model.runs.run import JobState

BLUE, ORANGE, GREEN, VERMILLION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
PURPLE, SKY, BLACK, GREY, PALE = "#b05a8c", "#56b4e9", "#000000", "#8a8a8a", "#c4c4c4"
INDIGO, SLATE = "#5d3a9b", "#6b6b6b"
TEXT, GRID = "#222222", "#e4e4e4"

CURVES = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK)

# of one job: no two of its curves have the same
CPU, MEMORY, PROCESSES = BLUE, VERMILLION, SLATE
GPU, GPU_MEMORY, POWER, GPU_POWER = INDIGO, PURPLE, BLACK, SKY
RECEIVED, SENT = GREEN, ORANGE
PEAK, MEAN = BLUE, ORANGE

_STATES = {
    JobState.COMPLETED: GREEN,
    JobState.FAILED: VERMILLION,
    JobState.TERMINATED: ORANGE,
    JobState.CANCELED: PURPLE,
    JobState.RUNNING: SKY,
}


def state_color(state: JobState) -> str:
    return _STATES.get(state, GREY)
