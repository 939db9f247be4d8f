"""The file of a report: a page with its script and style in it, and data in compressed blocks that the script
unpacks when a page needs them. It is written from start to end, so that memory does not grow with it."""

import base64
import hashlib
import zlib
from typing import IO, Any

from msgspec import json

from joblens.app.dashboard.bundle import ICON

_BLOCK_BYTES = 400_000  # of JSON before compression
_LEVEL = 9
# No request can leave the page, and nothing but this script and this style sheet takes effect.
_POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="joblens {version}">
<meta name="referrer" content="no-referrer">
<title>joblens report</title>
<link rel="icon" href="{icon}">
<style>{style}</style></head>
<body><noscript><p>This report needs JavaScript. It needs no server.</p></noscript>
"""


class ReportFile:
    """Writes items by kind. Items of a kind are numbered from 0; a block has several of them."""

    def __init__(self, file: IO[bytes], *, script: str, style: str, version: str) -> None:
        self._file = file
        self._script = script
        self._blocks = 0
        self._pending: dict[str, list[bytes]] = {}
        self._sizes: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._index: dict[str, list[tuple[int, int]]] = {}  # kind -> (block, its first item)
        policy = _POLICY.format(script=_digest(script), style=_digest(style))
        head = _HEAD.format(policy=policy, version=version, icon=ICON, style=style)
        self._file.write(head.encode())

    def add(self, kind: str, item: Any) -> int:
        """Returns the number of the item."""
        encoded = json.encode(item)
        self._pending.setdefault(kind, []).append(encoded)
        self._sizes[kind] = self._sizes.get(kind, 0) + len(encoded)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._sizes[kind] >= _BLOCK_BYTES:
            self._flush(kind)
        return self._counts[kind] - 1

    def close(self, manifest: dict[str, Any]) -> None:
        """Writes the rest, the manifest and the script that starts the page."""
        for kind in list(self._pending):
            self._flush(kind)
        encoded = json.encode({**manifest, "blocks": self._index}).decode().replace("<", "\\u003c")
        self._file.write(
            f'<script type="application/json" id="joblens-report">{encoded}</script>\n'
            f"<script>{self._script}</script>\n</body></html>\n".encode()
        )

    def _flush(self, kind: str) -> None:
        items = self._pending.pop(kind)
        self._sizes[kind] = 0
        self._index.setdefault(kind, []).append((self._blocks, self._counts[kind] - len(items)))
        packed = base64.b64encode(zlib.compress(b"[" + b",".join(items) + b"]", _LEVEL))
        self._file.write(b'<script type="text/plain" id="block-%d">' % self._blocks)
        self._file.write(packed + b"</script>\n")
        self._blocks += 1


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
