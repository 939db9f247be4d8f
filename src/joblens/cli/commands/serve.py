"""`joblens serve`: the store over HTTP, for browsers, programs and other machines."""

import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.errors import MissingExtra, how_to_install

if TYPE_CHECKING:
    from joblens.web.serving import Started


@click.command(cls=GroupedCommand)
@click.option("--host", metavar="ADDRESS", help="Address to listen on. Default: the setting server.host.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port to listen on; 0 for any free one. Default: the setting server.port.",
)
@click.option("--tls-cert", metavar="FILE", help="Certificate, PEM. Reloaded when the file changes.")
@click.option("--tls-key", metavar="FILE", help="Key of the certificate, PEM.")
@click.option(
    "--client-ca", metavar="FILE", help="Require client certificates of this authority (mutual TLS)."
)
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="A reverse proxy encrypts requests: allow addresses other than loopback without TLS.",
)
@click.option(
    "--grpc",
    metavar="[HOST:]PORT",
    help="Also serve gRPC, on this port; 0 for any free one. Default: the setting server.grpc.",
)
@click.option("--base-path", metavar="PATH", help="Path below which the proxy serves joblens: /joblens.")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Also answer requests for this host name. Repeatable.",
)
@click.option("--no-open", is_flag=True, help="Do not open the dashboard in the browser of a desktop.")
@shared_options
def command(
    session: Session, /, *, behind_proxy: bool, hosts: tuple[str, ...], no_open: bool, **values: Any
) -> None:
    """Serve the dashboard and the store over HTTP until stopped.

    Prints a sign-in URL that works once. Every request needs a session or a token (joblens token create).
    """
    for name in ("host", "port", "tls_cert", "tls_key", "client_ca", "base_path", "grpc"):
        value = values[name]
        session.override(f"server.{name}", None if value is None else str(value))
    settings = session.settings
    try:
        from joblens.web.serving import serve
    except ImportError as error:
        raise MissingExtra(f"serve needs {error.name}", hint=how_to_install("server")) from error
    from joblens.app.server.machine import socket_path
    from joblens.web.listeners import ServeOptions

    server = settings.server
    options = ServeOptions(
        host=server.host,
        port=server.port,
        socket_path=socket_path(settings),
        certificate=server.tls_cert or "",
        key=server.tls_key or "",
        client_ca=server.client_ca or "",
        is_behind_proxy=behind_proxy,
        base_path=server.base_path,
        grpc=server.grpc,
        grpc_roles=server.grpc_roles,
        hosts=(*hosts, *(each.strip() for each in server.hosts.split(",") if each.strip())),
    )
    opens = not (no_open or session.json) and sys.stdout.isatty() and has_desktop(os.environ, sys.platform)

    def note_start(started: "Started") -> None:
        _write_started(session, started)
        if opens:
            # In a thread: some browsers return only when they are closed.
            threading.Thread(target=_open, args=(started.sign_in_url,), daemon=True).start()

    serve(settings, session.options.config, options, session.warn, note_start)


def has_desktop(env: Mapping[str, str], platform: str) -> bool:
    """Returns whether the user would see a browser."""
    if env.get("SSH_CONNECTION") or env.get("SSH_TTY") or env.get("CI"):
        return False
    return platform == "darwin" or bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"))


def _open(url: str) -> None:
    import webbrowser

    with suppress(webbrowser.Error, OSError):  # the URL is on the screen
        webbrowser.open(url)


def _write_started(session: Session, started: "Started") -> None:
    if session.json:
        from msgspec import to_builtins

        session.write_json_line(to_builtins(started))
        return
    lines = [
        f"joblens serves {started.store}",
        f"  address:  {started.url}",
        f"  gRPC:     {started.grpc}" if started.grpc else "",
        f"  sign in:  {started.sign_in_url}",
        "            (works once; `joblens token create` makes tokens for programs and colleagues)",
        f"  socket:   {started.socket}",
        f"  from another machine: {started.ssh}" if started.ssh else "",
    ]
    session.write_lines([line for line in lines if line])
    session.flush()
