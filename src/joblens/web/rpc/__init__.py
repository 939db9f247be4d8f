"""gRPC: the service in joblens.proto. Imported only if it is served."""

PROTO_FILE = "joblens.proto"


def proto_text() -> str:
    """Returns the file from which clients are generated."""
    from importlib import resources

    return resources.files(__name__).joinpath(PROTO_FILE).read_text(encoding="utf-8")
