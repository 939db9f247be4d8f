"""What jobs ran in, as one compressed piece."""

import sys

import msgspec

from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.provenance import Provenance

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_MAX_JSON = 1 << 24  # a damaged length must not make us ask for all memory


def pack_provenance(provenance: Provenance) -> bytes:
    return zstd.compress(msgspec.json.encode(provenance), 3)


def unpack_provenance(data: bytes) -> Provenance:
    try:
        return msgspec.json.decode(zstd.ZstdDecompressor().decompress(data, _MAX_JSON), type=Provenance)
    except (zstd.ZstdError, EOFError, msgspec.MsgspecError) as error:
        raise StoreCorrupt(f"provenance of {len(data)} bytes cannot be read ({error})") from error
