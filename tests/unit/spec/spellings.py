"""The same content spelled in many ways: block and flow, comments, odd spacing, either kind of quotes."""

import json
import random
from typing import Any

Content = dict[str, Any]
_MEANT = ("true", "false", "null")  # words that mean something without quotes


def spell(content: Content, format_: str, chance: random.Random) -> str:
    return str(_SPELLERS[format_](chance).document(content))


def quoted(text: str) -> str:
    """In escapes that YAML and TOML share."""
    plain = (one if " " <= one <= "~" and one not in '"\\' else f"\\U{ord(one):08x}" for one in text)
    return '"' + "".join(plain) + '"'


class _Speller:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def comment(self, mark: str) -> str:
        return self.chance.choice(["", "", f"  {mark} note", f" {mark} a: 1, b = 2 }} ]"])

    def blank(self, mark: str) -> str:
        return self.chance.choice(["", "", "", "\n", f"{mark} on a line of its own\n", f"    {mark} deep\n"])


class _Yaml(_Speller):
    def blank(self, mark: str) -> str:
        """None of them indented: behind a text in a block they would belong to it."""
        return self.chance.choice(["", "", "\n", "# on a line of its own\n"])

    def document(self, content: Content) -> str:
        start = self.chance.choice(["", "---\n", "# top\n", "# top\n\n---\n"])
        return start + self.block(content, 0) + self.chance.choice(["", "\n# end\n", "...\n"])

    def block(self, content: Content, indent: int) -> str:
        return "".join(
            self.blank("#") + " " * indent + f"{self.key(key)}:{self.after_key(value, indent)}"
            for key, value in content.items()
        )

    def after_key(self, value: Any, indent: int) -> str:
        if isinstance(value, dict) and value and self.chance.random() < 0.7:
            return f"{self.comment('#')}\n{self.block(value, indent + self.chance.choice([1, 2, 4]))}"
        if isinstance(value, list) and value and self.chance.random() < 0.6:
            inner = indent + self.chance.choice([0, 2])
            return f"{self.comment('#')}\n" + "".join(self.item(item, inner) for item in value)
        if isinstance(value, str) and value.strip() and "\n" in value and self.chance.random() < 0.7:
            return self.literal(value, indent) or f" {self.flow(value)}\n"
        return f" {self.flow(value)}{self.comment('#')}\n"

    def item(self, value: Any, indent: int) -> str:
        if isinstance(value, dict) and value and self.chance.random() < 0.8:
            return (
                " " * indent
                + "- "
                + self.block(value, indent + 2)
                .lstrip(" #\n")
                .removeprefix("on a line of its own\n")
                .removeprefix("deep\n")
                .lstrip(" #\n")
            )
        return f"{' ' * indent}- {self.flow(value)}{self.comment('#')}\n"

    def literal(self, value: str, indent: int) -> str | None:
        if value.startswith((" ", "\n")) or not value.isascii() or not value.replace("\n", "").isprintable():
            return None
        body = value.rstrip("\n")
        ends = len(value) - len(body)
        if ends > 1:  # blank lines that belong to the text would run together with those that do not
            return None
        lines = "".join(f"{' ' * (indent + 3)}{line}\n" if line else "\n" for line in body.split("\n"))
        return f" |{'' if ends else '-'}\n{lines}"

    def flow(self, value: Any) -> str:
        gap = self.chance.choice(["", " "])
        if isinstance(value, dict):
            pairs = [f"{self.key(key)}: {self.flow(inner)}" for key, inner in value.items()]
            return "{" + gap + ", ".join(pairs) + gap + "}"
        if isinstance(value, list):
            return "[" + gap + ", ".join(map(self.flow, value)) + gap + "]"
        if isinstance(value, str) and value.isascii() and value.isalpha() and value.lower() not in _MEANT:
            return self.chance.choice([value, f"'{value}'", f'"{value}"'])
        return quoted(value) if isinstance(value, str) else json.dumps(value)

    def key(self, key: str) -> str:
        return key if key.isalnum() else json.dumps(key)


class _Json(_Speller):
    def document(self, content: Content) -> str:
        indent = self.chance.choice([None, 1, 2, 4, "\t"])
        separators = self.chance.choice([None, (",", ":"), (", ", " : ")])
        return json.dumps(content, indent=indent, separators=separators) + self.chance.choice(["", "\n"])


class _Json5(_Speller):
    def document(self, content: Content) -> str:
        return self.blank("//") + self.value(content, 0) + self.chance.choice(["", "\n", " // end"])

    def value(self, value: Any, depth: int) -> str:
        if isinstance(value, str):
            single = value.isalnum() and self.chance.random() < 0.5
            return f"'{value}'" if single else json.dumps(value)
        if not isinstance(value, dict | list):
            return json.dumps(value)
        pairs = (
            [f"{self.key(key)}: {self.value(inner, depth + 1)}" for key, inner in value.items()]
            if isinstance(value, dict)
            else [self.value(item, depth + 1) for item in value]
        )
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        if not pairs or self.chance.random() < 0.3:
            return opening + self.chance.choice([", ", ",", ",\n"]).join(pairs) + closing
        last_comma = self.chance.choice(["", ","])
        lines = [
            "  " * depth + pair + ("," if place + 1 < len(pairs) else last_comma) + self.comment("//") + "\n"
            for place, pair in enumerate(pairs)
        ]
        return opening + self.comment("//") + "\n" + self.blank("//").join(lines) + closing

    def key(self, key: str) -> str:
        return self.chance.choice([key, f"'{key}'", f'"{key}"']) if key.isalpha() else json.dumps(key)


class _Toml(_Speller):
    def document(self, content: Content) -> str:
        return self.blank("#") + self.table(content, [])

    def table(self, content: Content, path: list[str]) -> str:
        lines, later = [], []
        for key, value in content.items():
            inner = [*path, self.key(key)]
            if isinstance(value, dict) and self.chance.random() < 0.6:
                later.append(f"{self.blank('#')}[{'.'.join(inner)}]{self.comment('#')}\n")
                later.append(self.table(value, inner))
            elif isinstance(value, dict) and value and self.chance.random() < 0.5:
                pairs = [f"{self.key(key)}.{self.key(name)} = {self.inline(v)}" for name, v in value.items()]
                lines += [f"{pair}{self.comment('#')}\n" for pair in pairs]
            elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
                later += [f"\n[[{'.'.join(inner)}]]\n{self.table(item, inner)}" for item in value]
            else:
                indent = self.chance.choice(["", "", "  "])
                pair = f"{self.key(key)} = {self.inline(value)}{self.comment('#')}\n"
                lines.append(self.blank("#") + indent + pair)
        return "".join(lines + later)

    def inline(self, value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.key(key)} = {self.inline(v)}" for key, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + self.chance.choice([", ", ",\n  "]).join(map(self.inline, value)) + "]"
        if isinstance(value, str) and value.isalnum() and self.chance.random() < 0.4:
            return f"'{value}'"
        return quoted(value) if isinstance(value, str) else json.dumps(value)

    def key(self, key: str) -> str:
        return key if key.isalnum() and key.isascii() else json.dumps(key)


class _Kdl(_Speller):
    def document(self, content: Content) -> str:
        return self.blank("//") + "".join(f"{self.node(key, v, 0)}\n" for key, v in content.items())

    def node(self, key: str, value: Any, depth: int) -> str:
        name = key if key.isalpha() else json.dumps(key)
        if isinstance(value, list):
            return f"{name} {' '.join(map(self.scalar, value))}"
        if not isinstance(value, dict):
            return f"{name} {self.scalar(value)}{self.comment('//') if depth != 9 else ''}"
        if (
            value
            and all(not isinstance(v, dict | list) for v in value.values())
            and self.chance.random() < 0.4
        ):
            return f"{name} {' '.join(f'{json.dumps(k)}={self.scalar(v)}' for k, v in value.items())}"
        if self.chance.random() < 0.3 and not any(isinstance(v, dict) for v in value.values()):
            return f"{name} {{ {'; '.join(self.node(k, v, 9) for k, v in value.items())} }}"
        pad = "  " * (depth + 1)
        lines = [f"{self.blank('//')}{pad}{self.node(k, v, depth + 1)}\n" for k, v in value.items()]
        return f"{name} {{{self.comment('//')}\n{''.join(lines)}}}"

    def scalar(self, value: Any) -> str:
        if isinstance(value, bool):
            return f"#{str(value).lower()}"
        if isinstance(value, str):
            if value.isalnum() and self.chance.random() < 0.4:
                return self.chance.choice([f'r"{value}"', f'#"{value}"#', f'(kind)"{value}"'])
            return '"' + "".join(f"\\u{{{ord(c):x}}}" if not c.isalnum() else c for c in value) + '"'
        return json.dumps(value)


_SPELLERS: dict[str, type[Any]] = {
    "yaml": _Yaml,
    "json": _Json,
    "json5": _Json5,
    "toml": _Toml,
    "kdl": _Kdl,
}
