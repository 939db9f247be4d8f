"""Turns a terminal screen with its colours (`tmux capture-pane -e -p`) into an SVG picture for the docs.

python scripts/terminal_picture.py WIDTH TITLE < screen.ansi > docs/images/terminal.svg"""

import io
import re
import sys

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

SPACE = "&#160;"
COLUMN = 12.2  # width of a character in rich's pictures
TEXT = re.compile(r'(<text [^>]*?)x="([\d.]+)"([^>]*?)textLength="([\d.]+)"([^>]*)>([^<]*)</text>')
# rich cuts the screen off at the foot of its last letters, underscores and all
LAST_LINE = re.compile(r'(clip-terminal">\s*<rect [^>]*height=")([\d.]+)')
BELOW_LETTERS = 6
FONTS = "'DejaVu Sans Mono', Menlo, Consolas, monospace"
# black red green yellow blue magenta cyan white: readable on the dark ground below
NORMAL = [(40, 44, 52), (224, 108, 117), (132, 204, 122), (229, 192, 123), (97, 175, 239), (198, 120, 221)]
NORMAL += [(86, 182, 194), (200, 204, 212)]
THEME = TerminalTheme((24, 26, 31), (214, 218, 224), NORMAL, NORMAL)


def picture(screen: str, width: int, title: str) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    for line in screen.rstrip().splitlines():
        console.print(Text.from_ansi(line), overflow="crop", no_wrap=True)
    svg = console.export_svg(title=title, theme=THEME, unique_id="joblens")
    # Nothing is loaded from elsewhere: the reader's own monospaced font does.
    svg = re.sub(r"\s*<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: Fira Code, ?monospace", f"font-family: {FONTS}", svg)
    svg = LAST_LINE.sub(lambda found: f"{found[1]}{float(found[2]) + BELOW_LETTERS}", svg)
    svg = TEXT.sub(_begin_at_the_first_letter, svg)
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


def _begin_at_the_first_letter(found: re.Match[str]) -> str:
    """Some programs drop leading spaces; a text that is moved to the right has none."""
    head, x, middle, length, tail, text = found.groups()
    columns = 0
    while text.startswith(SPACE):
        text = text.removeprefix(SPACE)
        columns += 1
    if not text.strip():
        return ""
    place, wide = float(x) + columns * COLUMN, float(length) - columns * COLUMN
    return f'{head}x="{place:.1f}"{middle}textLength="{wide:.1f}"{tail}>{text}</text>'


if __name__ == "__main__":
    print(picture(sys.stdin.read(), int(sys.argv[1]), sys.argv[2]))
