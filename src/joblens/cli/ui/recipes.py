"""Views of a recipe in progress: drawn in place on a terminal, occasional lines elsewhere."""

import os
import time
from collections.abc import Callable

from joblens.cli.ui.screen import RunScreen
from joblens.model.recipes.snapshot import JobSnapshot
from joblens.views.recipes.snapshot import progress_line, render_recipe_live
from joblens.views.text.style import Palette

_DRAW_EVERY_S = 0.2
_LINE_EVERY_S = 10.0
_SHARE = 0.05  # share of the time for reading and drawing: the job runs on the same machine


class RecipeScreen:
    def __init__(self, name: str, descriptor: int, paint: Palette) -> None:
        self._name = name
        self._screen = RunScreen(descriptor)
        self._paint = paint
        self._began_s = time.monotonic()
        self._draw_at_s = 0.0

    def tick(self, snapshot: Callable[[], JobSnapshot]) -> None:
        now_s = time.monotonic()
        if now_s >= self._draw_at_s:
            self._draw(snapshot())
            took_s = time.monotonic() - now_s
            self._draw_at_s = now_s + max(_DRAW_EVERY_S, took_s / _SHARE)

    def close(self) -> None:
        """Erases the drawing: the summary repeats it, with more."""
        self._screen.draw([])
        self._screen.leave()

    def _draw(self, snapshot: JobSnapshot) -> None:
        size = self._screen.size
        self._screen.draw(
            render_recipe_live(
                snapshot,
                self._name,
                elapsed_s=time.monotonic() - self._began_s,
                width=size.columns - 1,
                height=max(2, size.lines - 1),
                paint=self._paint,
            )
        )


class RecipeLines:
    """Writes occasional lines, for long jobs."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._began_s = time.monotonic()
        self._next_s = self._began_s + _LINE_EVERY_S

    def tick(self, snapshot: Callable[[], JobSnapshot]) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _LINE_EVERY_S
        try:
            line = progress_line(snapshot(), now_s - self._began_s)
            os.write(self._descriptor, f"{line}\n".encode(errors="replace"))
        except OSError:
            pass  # the reader is gone; the job continues

    def close(self) -> None:
        pass


def recipe_view(name: str, *, descriptor: int, color: bool) -> RecipeScreen | RecipeLines:
    if os.isatty(descriptor) and os.environ.get("TERM", "dumb") != "dumb":
        return RecipeScreen(name, descriptor, Palette(is_on=color))
    return RecipeLines(descriptor)
