"""What is said about a mistake, in the words of the format it was made in."""

import re

_NO_LIST = re.compile(r"(\S+) must be a list of mappings, not a mapping")
_MEANT = re.compile(r"did you mean '(\w+)'\?")


def in_words_of(format: str, message: str) -> str:  # noqa: A002
    if _NO_LIST.match(message):
        return message + _how_a_list_is_written(format, message.split(maxsplit=1)[0])
    if format == "kdl":
        return _MEANT.sub(_as_node, message)
    return message


def _how_a_list_is_written(format: str, key: str) -> str:  # noqa: A002
    match format:
        case "yaml":
            return "; begin each entry with '- '"
        case "toml":
            return f"; begin each entry with [[{key}]]"
        case "json" | "json5":
            return "; write [{…}, {…}]"
        case "kdl":
            from joblens.spec.formats.kdl_workflow import node_name

            return f'; write a node for each entry, without {key} around them: {node_name(key)} "a" {{ … }}'
    return ""


def _as_node(found: "re.Match[str]") -> str:
    """KDL has a node for each entry of a list, named in the singular."""
    from joblens.spec.formats.kdl_workflow import node_name

    return f"did you mean '{node_name(found[1])}'?"
