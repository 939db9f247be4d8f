"""One script and one style sheet made of the modules in `static`, for the server and for reports.

Modules are plain JavaScript that browsers and type checkers read as they are. Here each becomes a function,
in the order of their imports: one file works everywhere, also opened from disk, where browsers load no
modules."""

import functools
import gzip
import hashlib
import os
import re
from importlib.util import find_spec

from msgspec import Struct

from joblens.model.errors import MissingExtra, how_to_install

STATIC = os.path.join(os.path.dirname(__file__), "static")
_IMPORT = re.compile(
    r'^import\s+(?:\{(?P<names>[^}]*)\}|\*\s+as\s+(?P<all>\w+))\s+from\s+"(?P<path>[^"]+)";\n', re.MULTILINE
)
_EXPORT = re.compile(r"^export\s+(?:async\s+)?(?:const|let|class|function\*?)\s+(\w+)", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
# A page without an icon makes the browser ask for one.
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16' fill='none' "
    "stroke='%230b5cad' stroke-width='2.5'%3E%3Ccircle cx='7' cy='7' r='5'/%3E"
    "%3Cpath d='M11 11l4 4'/%3E%3C/svg%3E"
)


class Asset(Struct, frozen=True, kw_only=True):
    """A file of the page. `name` has a digest of the content, so that browsers may keep it without asking."""

    name: str
    media_type: str
    content: bytes
    compressed: bytes  # with gzip


class Assets(Struct, frozen=True, kw_only=True):
    script: Asset
    style: Asset


@functools.cache
def assets() -> Assets:
    """Returns the files of the dashboard. Raises MissingExtra."""
    plot, plot_style = _uplot("uPlot.iife.js"), _uplot("uPlot.min.css")
    script = f"{plot}\n{script_of('main.js')}"
    style = f"{plot_style}\n{style_sheet()}"
    return Assets(
        script=_asset("joblens", "js", "text/javascript", script),
        style=_asset("joblens", "css", "text/css", style),
    )


@functools.cache
def report_parts() -> tuple[str, str]:
    """Returns the script and the style sheet of a report, to be put into its page. Raises MissingExtra."""
    script = f"{_uplot('uPlot.iife.js')}\n{script_of('report.js')}"
    style = f"{_uplot('uPlot.min.css')}\n{style_sheet()}"
    # Inside an element of the page, these would end it.
    script = script.replace("</script", "<\\/script").replace("<!--", "\\x3C!--")
    return script, style.replace("</style", "<\\/style")


def style_sheet() -> str:
    """Returns all style sheets in the order of their names."""
    folder = os.path.join(STATIC, "style")
    return "\n".join(_read(os.path.join("style", name)) for name in sorted(os.listdir(folder)))


def script_of(*entries: str) -> str:
    """Returns a script of these modules and everything they import. It runs them in order."""
    order: list[str] = []
    for entry in entries:
        _visit(entry, order, ())
    parts = [_wrapped(path) for path in order]
    return '(() => {\n"use strict";\nconst modules = {};\n' + "".join(parts) + "})();\n"


def _visit(path: str, order: list[str], above: tuple[str, ...]) -> None:
    if path in above:
        raise ValueError(f"modules import each other: {' -> '.join((*above, path))}")
    if path in order:
        return
    for found in _IMPORT.finditer(_read(path)):
        _visit(_resolved(path, found["path"]), order, (*above, path))
    order.append(path)


def _wrapped(path: str) -> str:
    source = _read(path)

    def bound(found: re.Match[str]) -> str:
        target = f'modules["{_resolved(path, found["path"])}"]'
        if found["all"]:
            return f"const {found['all']} = {target};\n"
        names = ", ".join(
            " ".join(name.split()).replace(" as ", ": ") for name in found["names"].split(",") if name.strip()
        )
        return f"const {{ {names} }} = {target};\n"

    body = _IMPORT.sub(bound, source)
    exported = _EXPORT.findall(body)
    body = re.sub(r"^export\s+(?=(?:async\s+)?(?:const|class|function))", "", body, flags=re.MULTILINE)
    if (left := _OTHER.search(body)) is not None:
        raise ValueError(f"{path}: write imports and exports one per statement, by name: {left.group()[:60]}")
    return f'modules["{path}"] = (() => {{\n{body}return {{ {", ".join(exported)} }};\n}})();\n'


def _resolved(importer: str, path: str) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(importer), path))


@functools.cache
def _read(path: str) -> str:
    with open(os.path.join(STATIC, path), encoding="utf-8") as file:
        return file.read()


def _uplot(name: str) -> str:
    package = find_spec("uplot")  # without importing it, which would import numpy
    if package is None or package.origin is None:
        raise MissingExtra("the dashboard needs uplot-python", hint=how_to_install("server"))
    with open(os.path.join(os.path.dirname(package.origin), "static", name), encoding="utf-8") as file:
        return file.read()


def _asset(name: str, kind: str, media_type: str, text: str) -> Asset:
    content = text.encode()
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    return Asset(
        name=f"{name}-{digest}.{kind}",
        media_type=media_type,
        content=content,
        compressed=gzip.compress(content, 9, mtime=0),
    )
