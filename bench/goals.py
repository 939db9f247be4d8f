"""A measured figure with its goal."""

from typing import NamedTuple


class Figure(NamedTuple):
    what: str
    value: float
    unit: str
    goal: float
    at_least: bool = False  # otherwise: at most
    note: str = ""

    @property
    def is_met(self) -> bool:
        return self.value >= self.goal if self.at_least else self.value <= self.goal


def render(figures: list[Figure]) -> str:
    width = max(len(figure.what) for figure in figures)
    lines = []
    for figure in figures:
        sign = "≥" if figure.at_least else "≤"
        verdict = "met   " if figure.is_met else "MISSED"
        goal = f"{sign} {figure.goal:g} {figure.unit}".rstrip()
        value = f"{figure.value:.4g} {figure.unit}".rstrip()
        lines.append(
            f"{verdict}  {figure.what:<{width}}  {value:>14}   goal {goal:<14} {figure.note}".rstrip()
        )
    return "\n".join(lines)
