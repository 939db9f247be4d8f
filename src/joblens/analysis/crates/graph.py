"""The entities of an RO-Crate: each once, whatever speaks of it."""

from collections.abc import Iterable
from typing import Any

CRATE_VERSION = "https://w3id.org/ro/crate/1.1"
_TERMS = "https://w3id.org/ro/terms/workflow-run#"
# What the profiles of runs add to the words of RO-Crate 1.1; written out, so that a reader needs one context.
_RUN_TERMS = (
    "ContainerImage",
    "DockerImage",
    "ParameterConnection",
    "SIFImage",
    "connection",
    "containerImage",
    "environment",
    "registry",
    "resourceUsage",
    "sha256",
    "sourceParameter",
    "tag",
    "targetParameter",
)
# Words for datasets that neither schema.org nor the profiles have.
_OWN_TERMS = ("fileCount", "hashMode")
_SAFE = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/")

Ref = dict[str, str]


class CrateGraph:
    """Adding an entity twice adds to what is said of it: lists grow, everything else stays as first said."""

    def __init__(self) -> None:
        self._entities: dict[str, dict[str, Any]] = {}
        self._values: dict[tuple[str, ...], str] = {}
        self._referred: set[tuple[str, str, str]] = set()

    def __contains__(self, ident: str) -> bool:
        return ident in self._entities

    def add(self, ident: str, kind: str | tuple[str, ...], **said: Any) -> Ref:
        """What is None or empty is not said at all."""
        entity = self._entities.setdefault(ident, {"@id": ident, "@type": kind})
        for name, value in said.items():
            if value is None or value in ("", []):
                continue
            if isinstance(value, list):
                self.extend(ident, name, value)
            else:
                entity.setdefault(name, value)
        return {"@id": ident}

    def extend(self, ident: str, name: str, values: Iterable[Any]) -> None:
        """More of a list; what is referred to is in it once."""
        known = self._entities[ident].setdefault(name, [])
        for value in values:
            key = (ident, name, value["@id"]) if isinstance(value, dict) else None
            if key is None or key not in self._referred:
                known.append(value)
            if key is not None:
                self._referred.add(key)

    def retype(self, ident: str, kind: tuple[str, ...]) -> None:
        self._entities[ident]["@type"] = kind

    def value(self, kind: str, name: str, value: Any, **said: Any) -> Ref:
        """A named value; jobs that have the same share it."""
        key = (kind, name, repr(value), *(f"{word}={one}" for word, one in sorted(said.items())))
        ident = self._values.setdefault(key, f"#{kind}-{len(self._values) + 1}-{percent_encoded(name)}")
        return self.add(ident, "PropertyValue", name=name, value=plain(value), **said)

    def document(self) -> dict[str, Any]:
        context: list[Any] = [
            f"{CRATE_VERSION}/context",
            {
                **{term: f"{_TERMS}{term}" for term in _RUN_TERMS},
                **{term: f"urn:joblens:{term}" for term in _OWN_TERMS},
            },
        ]
        return {"@context": context, "@graph": [_compact(entity) for entity in self._entities.values()]}


def plain(value: Any) -> Any:
    """As one value of a graph: JSON-LD would read lists and objects inside as entities."""
    if isinstance(value, bool | int | float | str):
        return value
    from msgspec import json

    return json.encode(value).decode()


def percent_encoded(text: str) -> str:
    """For the path of a URI."""
    return "".join(
        chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape")
    )


def _compact(entity: dict[str, Any]) -> dict[str, Any]:
    """A list of one is that one."""
    return {
        name: value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
        for name, value in entity.items()
    }
