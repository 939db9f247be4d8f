"""One sample as a few hundred bytes of MessagePack, for samples that wait to be put into a block.

An array: the devices first, then the columns in the order of SAMPLE_COLUMNS, which only ever grows."""

import msgspec
from msgspec.structs import astuple

from joblens.model.errors import StoreCorrupt
from joblens.model.sample import SAMPLE_COLUMNS, DeviceIo, Sample

_DEVICES_AT = Sample.__struct_fields__.index("devices")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[object])


def encode_sample(sample: Sample) -> bytes:
    fields = astuple(sample)
    try:
        return _encoder.encode((fields[_DEVICES_AT], *fields[:_DEVICES_AT], *fields[_DEVICES_AT + 1 :]))
    except OverflowError:
        fitting = [None if isinstance(field, int) and abs(field) >= 1 << 63 else field for field in fields]
        return _encoder.encode((fields[_DEVICES_AT], *fitting[:_DEVICES_AT], *fitting[_DEVICES_AT + 1 :]))


def decode_sample(data: bytes) -> Sample:
    try:
        devices, *columns = _decoder.decode(data)
        named = zip(SAMPLE_COLUMNS, columns, strict=False)
        fields = {name: value for name, value in named if value is not None}
        fields["devices"] = msgspec.convert(devices, dict[str, DeviceIo] | None)
        return msgspec.convert(fields, Sample)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreCorrupt(f"a sample of {len(data)} bytes cannot be read ({error})") from error
