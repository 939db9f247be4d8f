"""Details and provenance of a job, each as one compressed value."""

import functools
from collections.abc import Mapping

import msgspec

from joblens.files.zstd import ZstdCompressor, ZstdDecompressor, ZstdError
from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.details import Details, Provenance

_MAX_JSON = 1 << 26  # a damaged length must not allocate all memory
_encoder = msgspec.json.Encoder()
_compressor = ZstdCompressor(level=3)  # creating one costs as much as using it


def pack_details(details: Details) -> bytes:
    return _compressor.compress(_encoder.encode(details), ZstdCompressor.FLUSH_FRAME)


def unpack_details(data: bytes) -> Details:
    try:
        return _decoder().decode(ZstdDecompressor().decompress(data, _MAX_JSON))
    except (ZstdError, EOFError, msgspec.MsgspecError) as error:
        raise StoreCorrupt(f"details of {len(data)} bytes cannot be read ({error})") from error


def repacked(known: Mapping[int, bytes], news: Mapping[int, Details]) -> dict[int, bytes]:
    """Returns the bytes to write for news of jobs, by number, without jobs that the news does not change."""
    packed = {
        number: pack_details(_readable(known.get(number, b"")).updated(details))
        for number, details in news.items()
    }
    return {number: data for number, data in packed.items() if data != known.get(number)}


def _readable(data: bytes) -> Details:
    """Returns the stored details; damaged ones count as empty and are overwritten."""
    try:
        return unpack_details(data) if data else Details()
    except StoreCorrupt:
        return Details()


@functools.cache
def _decoder() -> "msgspec.json.Decoder[Details]":
    """Creates the decoder on demand: it is expensive, and a job that writes its details once needs none."""
    return msgspec.json.Decoder(Details)


_PACKED_PROVENANCE_MAX_JSON = 1 << 24  # a damaged length must not allocate all memory


def pack_provenance(provenance: Provenance) -> bytes:
    return _compressor.compress(_encoder.encode(provenance), ZstdCompressor.FLUSH_FRAME)


def unpack_provenance(data: bytes) -> Provenance:
    try:
        return msgspec.json.decode(
            ZstdDecompressor().decompress(data, _PACKED_PROVENANCE_MAX_JSON), type=Provenance
        )
    except (ZstdError, EOFError, msgspec.MsgspecError) as error:
        raise StoreCorrupt(f"provenance of {len(data)} bytes cannot be read ({error})") from error
