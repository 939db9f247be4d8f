"""`joblens token`: access tokens of the server."""

import click
from msgspec import to_builtins

from joblens.cli.commands.other_names import CommandGroup
from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.model.access import ApiToken, Role, Scope
from joblens.model.values.units import format_instant

_LIFETIME = "30d"


@click.group("token", cls=CommandGroup)
def command() -> None:
    """Create, list, rotate and revoke access tokens of the server."""


@command.command("create")
@click.argument("name")
@click.option("--user", metavar="USER", help="User of the store that requests act as. Default: you.")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.READER.value,
    show_default=True,
    help="reader: read; operator: also submit, cancel, rerun, tag; admin: also delete, manage tokens.",
)
@click.option(
    "--scope",
    type=click.Choice([scope.value for scope in Scope]),
    default=Scope.OWN.value,
    show_default=True,
    help="own: jobs of the user; all: all jobs.",
)
@click.option(
    "--expires",
    metavar="TIME",
    default=_LIFETIME,
    show_default=True,
    help="Lifetime: 12h, 30d, or never.",
)
@shared_options
def create(session: Session, name: str, user: str | None, role: str, scope: str, expires: str) -> None:
    """Create a token and print it. It cannot be shown again: only its hash is stored."""
    from joblens.app.jobs.requests import seconds_of
    from joblens.app.server.access import create_token, local_owner

    owner = local_owner()
    new = create_token(
        session.queue_writer,
        owner,
        name=name,
        user=user or owner.user,
        role=Role(role),
        scope=Scope(scope),
        lifetime_s=None if expires == "never" else seconds_of("--expires", expires),
    )
    _show_new(session, new.secret, new.token)


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Include expired and revoked tokens.")
@shared_options
def list_tokens(session: Session, everything: bool) -> None:
    """List tokens, newest first."""
    from joblens.app.wiring.drivers import SystemClock

    now_us = SystemClock().now_us()
    tokens = [] if session.store_if_exists is None else session.queue_store.tokens()
    shown = [each for each in tokens if everything or each.is_valid(now_us)]
    if session.json:
        session.write_json([_form(each) for each in shown])
        return
    if not shown:
        session.write("No tokens. Create one: joblens token create NAME\n")
        return
    from joblens.views.text.table import Column, render_table

    columns = [
        Column("ID"),
        Column("NAME"),
        Column("USER"),
        Column("ROLE"),
        Column("SCOPE"),
        Column("EXPIRES"),
    ]
    rows = [
        [each.id, each.name, each.user, each.role.value, each.scope.value, _expiry(each, now_us)]
        for each in shown
    ]
    session.write_lines(render_table(columns, rows, session.table_width, session.palette))


@command.command("rotate")
@click.argument("token")
@click.option(
    "--overlap",
    metavar="TIME",
    default="0s",
    show_default=True,
    help="How long the old token keeps working.",
)
@shared_options
def rotate(session: Session, token: str, overlap: str) -> None:
    """Replace a token with a new one with the same rights and lifetime."""
    from joblens.app.jobs.requests import seconds_of
    from joblens.app.server.access import local_owner, rotate_token

    overlap_s = seconds_of("--overlap", overlap) or 0.0
    new = rotate_token(session.queue_writer, local_owner(), token, overlap_s)
    _show_new(session, new.secret, new.token)


@command.command("revoke")
@click.argument("tokens", nargs=-1, required=True, metavar="TOKEN…")
@shared_options
def revoke(session: Session, tokens: tuple[str, ...]) -> None:
    """Revoke tokens. A running server refuses them within a second."""
    from joblens.app.server.access import find_token, local_owner, revoke_token

    store = session.queue_writer
    found = [find_token(store, each) for each in tokens]  # all or none
    revoked = [revoke_token(store, local_owner(), each.id) for each in found]
    if session.json:
        session.write_json([_form(each) for each in revoked])
    else:
        session.write("".join(f"Revoked {each.id} ({each.name})\n" for each in revoked))


def _show_new(session: Session, secret: str, token: ApiToken) -> None:
    if session.json:
        session.write_json({"secret": secret, "token": _form(token)})
        return
    session.write(f"{secret}\n")
    session.note(
        f"Token {token.id} ({token.name}): {token.role} for {token.user}, scope {token.scope}, "
        f"expires {_expiry(token, 0)}. It is not shown again."
    )


def _form(token: ApiToken) -> dict[str, object]:
    return {key: value for key, value in to_builtins(token).items() if key != "hash"}


def _expiry(token: ApiToken, now_us: int) -> str:
    if token.revoked_at_us is not None:
        return "revoked"
    if token.expires_at_us is None:
        return "never"
    return "expired" if token.expires_at_us <= now_us else f"{format_instant(token.expires_at_us)[:16]}Z"
