"""`joblens submit`: a command, a workflow file, or a tool with a script. Which of them it is stands before
click reads on."""

from typing import Any

import click

from joblens.cli.options.quick_run import first_word, split_spec
from joblens.cli.options.spec_command import SpecCommand, with_spec
from joblens.model.errors import UnknownTool

_KEY, _MISTAKE = "joblens.tool", "joblens.unknown_tool"
_DEVICES = ("cpu", "gpu", "intel-gpu")


class ToolOrSpecCommand(SpecCommand):
    """The first word, where it does not stand behind `--`, may be a tool's name. Then a script follows, and
    options may stand anywhere."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = first_word(args)
        try:
            tool = None if place is None else _tool(args[place], in_container=_names_container(args[:place]))
        except UnknownTool as error:
            tool, ctx.meta[_MISTAKE] = None, error  # told when the options are known to be right
        ctx.meta[_KEY] = tool
        if tool is None or place is None:
            return super().parse_args(ctx, args)
        ctx.allow_interspersed_args = True
        try:
            return click.Command.parse_args(self, ctx, args[:place] + args[place + 1 :])
        except click.NoSuchOption as error:
            raise click.UsageError(
                f"{error.format_message()} '{tool}' is a tool here; a command goes behind --: "
                f"joblens {ctx.info_name} -- {tool} …",
                ctx,
            ) from None


def _names_container(options: list[str]) -> bool:
    return any(word.partition("=")[0] == "--container" for word in options)


def _tool(word: str, *, in_container: bool) -> str | None:
    """The word, if it is the name of a tool; None: a command or a file. What is none of them was mistyped,
    or is a tool that is not there. Of programs inside a container nothing is known here."""
    import os
    import shutil

    from joblens.app.queue.tools import tool_shelf
    from joblens.spec.formats.words import nearest_word

    if os.sep in word or split_spec([word])[0] is not None:
        return None
    shelf = tool_shelf()
    if word in shelf.tools or word in shelf.broken:
        return word
    if shutil.which(word) is not None or os.path.exists(word):
        return None
    near = nearest_word(word, shelf.tools)
    if in_container and not near:
        return None
    meant = f"; did you mean '{near}'?" if near else ""
    usual = "joblens list-tools shows the tools; a command that is only elsewhere goes behind --"
    raise UnknownTool(
        f"there is no tool or command '{word}'{meant}", hint="; ".join(shelf.passed_over) or usual
    )


def with_tool(given: dict[str, Any]) -> dict[str, Any]:
    """`given` with the tool under `tool_name` and its script under `tool_script`, or the workflow file under
    `spec`; all None: a command."""
    meta = click.get_current_context().meta
    if _MISTAKE in meta:
        raise meta[_MISTAKE]
    tool = meta.get(_KEY)
    if tool is None:
        return {**with_spec(given), "tool_name": None, "tool_script": None}
    words = given["command_line"]
    if len(words) != 1:
        said = f"'{words[1]}' behind the script {words[0]}" if words else f"{tool} needs a script"
        raise click.UsageError(
            f"{said}: joblens submit {tool} SCRIPT [OPTIONS]; a command goes behind --: "
            f"joblens submit -- {tool} …"
        )
    return {**given, "spec": None, "tool_name": tool, "tool_script": words[0]}


def split_devices(given: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """--device says what a tool computes on, or what a container is given. -> (the first, the others)"""
    kinds = [word for word in given if word in _DEVICES]
    unknown = next((word for word in given if word not in _DEVICES and "/" not in word), None)
    if unknown is not None:
        raise click.UsageError(
            f"--device {unknown}: a tool computes on {', '.join(_DEVICES)}; "
            "what a container is given is a path, such as /dev/dri"
        )
    if len(kinds) > 1:
        raise click.UsageError(f"--device {kinds[0]} and --device {kinds[1]}: a tool runs on one")
    return (kinds[0] if kinds else ""), tuple(word for word in given if word not in _DEVICES)
