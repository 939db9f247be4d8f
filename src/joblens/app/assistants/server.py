"""MCP server on standard input and output, made with the official SDK. Needs the extra `mcp`."""

import functools
from collections.abc import Callable
from typing import Any

from joblens import __version__
from joblens.app.assistants.tools import INSTRUCTIONS, ChangingTools, JobTools
from joblens.model.errors import JoblensError, MissingExtra, how_to_install

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import ToolAnnotations
except ImportError as error:
    raise MissingExtra(f"joblens mcp needs the extra 'mcp' ({error})", hint=how_to_install("mcp")) from error

READING = (
    "list_jobs",
    "show_job",
    "explain_failure",
    "job_output",
    "job_metrics",
    "compare_jobs",
    "rightsize",
)
CHANGING = ("cancel_job", "submit_command")


def make_server(tools: JobTools, changing: ChangingTools | None) -> "MCPServer[Any]":
    """`changing` None: nothing can be changed."""
    server: MCPServer[Any] = MCPServer(
        "joblens", version=__version__, instructions=INSTRUCTIONS, log_level="ERROR"
    )
    for name in READING:
        _add(server, getattr(tools, name), ToolAnnotations(read_only_hint=True, open_world_hint=False))
    for name in CHANGING if changing is not None else ():
        _add(server, getattr(changing, name), ToolAnnotations(read_only_hint=False, destructive_hint=True))
    return server


def _add(server: "MCPServer[Any]", tool: Callable[..., dict[str, Any]], annotations: ToolAnnotations) -> None:
    @functools.wraps(tool)
    def call(*positional: Any, **named: Any) -> dict[str, Any]:
        try:
            return tool(*positional, **named)
        except JoblensError as error:
            raise ToolError(f"{error} ({error.hint})" if error.hint else str(error)) from error

    server.add_tool(call, annotations=annotations)
