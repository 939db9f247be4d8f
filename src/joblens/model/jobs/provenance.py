"""What a job ran in: enough to run it again, and to say what was different. Many jobs share one: it is stored
once, under a digest of itself."""

from msgspec import Struct, field, json

from joblens.model.values.digests import blake2b


class CodeVersion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The repository that a job was started in."""

    commit: str
    is_dirty: bool | None = None  # files that git knows were changed; None: not looked at
    branch: str = ""
    remote: str = ""  # without user and password
    root: str = ""
    changes_digest: str = ""  # of what was changed, where something was


class Program(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that the command starts: the program, an interpreter's script."""

    path: str
    sha256: str = ""
    bytes: int | None = None
    version: str = ""  # of an interpreter, where names of files tell it


class Hardware(Struct, frozen=True, kw_only=True, omit_defaults=True):
    cpu_model: str = ""
    architecture: str = ""
    cpus: int | None = None
    memory_bytes: int | None = None
    gpus: tuple[str, ...] = ()  # models


class Provenance(Struct, frozen=True, kw_only=True, omit_defaults=True):
    host: str = ""
    system: str = ""  # Debian GNU/Linux 12, kernel 6.1
    kernel: str = ""
    hardware: Hardware = Hardware()
    code: CodeVersion | None = None
    programs: tuple[Program, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)  # joblens, python, packages the command can import
    environment: dict[str, str] = field(default_factory=dict)  # by allow-list, without secrets
    limits: dict[str, str] = field(default_factory=dict)  # umask, stack, open files
    unknown: dict[str, str] = field(default_factory=dict)  # part -> why there is nothing


def digest_of(provenance: Provenance) -> str:
    """Its name in a store: the same for all that is equal."""
    told = json.encode(provenance, order="deterministic")
    return blake2b(told, 16).hexdigest()
