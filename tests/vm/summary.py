"""Summary of a test run in a machine: a table of situations and checks, and numbers beside their goals."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Summary:
    """Collects facts while tests run. `cells[check][situation]` is a short text such as "0.3 %"."""

    machine: str = ""
    cells: dict[str, dict[str, str]] = field(default_factory=dict)
    numbers: list[dict[str, str]] = field(default_factory=list)
    _worst: dict[str, float] = field(default_factory=dict)
    _tries: dict[str, tuple[int, int]] = field(default_factory=dict)

    def note(self, situation: str, check: str, text: str) -> None:
        self.cells.setdefault(check, {})[situation] = text

    def number(self, name: str, value: str, *, goal: str, is_met: bool) -> None:
        """A number of the goals. A missed one does not fail: speed depends on the load of this host."""
        self.numbers = [entry for entry in self.numbers if entry["name"] != name]
        result = "met" if is_met else "missed"
        self.numbers.append({"name": name, "value": value, "goal": goal, "result": result})

    def worst(self, name: str, percent: float, *, goal_percent: float) -> None:
        """Keep the largest deviation of all situations."""
        self._worst[name] = max(abs(percent), self._worst.get(name, 0.0))
        is_met = self._worst[name] <= goal_percent
        self.number(name, f"{self._worst[name]:.2f} %", goal=f"within {goal_percent:g} %", is_met=is_met)

    def exact(self, name: str, right: int, tries: int) -> None:
        """Add up tries of all situations, of which every one has to be right."""
        before = self._tries.get(name, (0, 0))
        right, tries = right + before[0], tries + before[1]
        self._tries[name] = (right, tries)
        self.number(name, f"{right} of {tries} exact", goal="all", is_met=right == tries)

    def print(self, write: Callable[[str], None]) -> None:
        if self.machine:
            write(self.machine)
        situations = list(dict.fromkeys(name for row in self.cells.values() for name in row))
        if self.cells:
            rows = [["", *situations]]
            rows += [
                [check, *(row.get(name, "-") for name in situations)] for check, row in self.cells.items()
            ]
            widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
            for row in rows:
                write("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
        for entry in self.numbers:
            write(f"{entry['name']}: {entry['value']} (goal {entry['goal']}: {entry['result']})")

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        public = {name: value for name, value in asdict(self).items() if not name.startswith("_")}
        path.write_text(json.dumps(public, indent=2) + "\n")
