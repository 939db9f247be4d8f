"""The store behind a server: queries over HTTP, with the standard library's client."""

from joblens.stores.remote.address import TlsFiles
from joblens.stores.remote.connection import ServerConnection
from joblens.stores.remote.events import EventStream, ServerEvent
from joblens.stores.remote.logs import RemoteLog
from joblens.stores.remote.store import RemoteStore

__all__ = ["EventStream", "RemoteLog", "RemoteStore", "ServerConnection", "ServerEvent", "TlsFiles"]
