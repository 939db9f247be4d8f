"""Reads a report as a browser does: its manifest, and items from its blocks."""

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any


class OpenedReport:
    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        found = re.search(
            r'<script type="application/json" id="joblens-report">(.*?)</script>', self.text, re.DOTALL
        )
        assert found is not None
        self.manifest: dict[str, Any] = json.loads(found[1])

    def block(self, number: int) -> list[Any]:
        found = re.search(
            rf'<script type="text/plain" id="block-{number}">([A-Za-z0-9+/=]*)</script>', self.text
        )
        assert found is not None
        items: list[Any] = json.loads(zlib.decompress(base64.b64decode(found[1])))
        return items

    def items(self, kind: str) -> list[Any]:
        return [item for number, _ in self.manifest["blocks"].get(kind, ()) for item in self.block(number)]

    @property
    def rows(self) -> dict[str, list[Any]]:
        """All columns of the job table; a report of few jobs has one part."""
        (part,) = self.items("rows")
        columns: dict[str, list[Any]] = part["columns"]
        return columns

    @property
    def everything(self) -> str:
        """All text of the data, decoded."""
        kinds = {kind: self.items(kind) for kind in self.manifest["blocks"]}
        return json.dumps([self.manifest, kinds], ensure_ascii=False)
