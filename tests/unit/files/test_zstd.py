"""zstd in stores is that of its package."""

import sys

import pytest

from joblens.files import zstd

package = pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def test_it_is_the_same_module_as_that_of_the_package() -> None:
    assert zstd.ZstdCompressor is package.ZstdCompressor
    assert zstd.ZstdError is package.ZstdError


def test_parameters_have_the_numbers_of_the_library() -> None:
    numbers = package.CompressionParameter
    assert (numbers.compression_level, numbers.checksum_flag) == (zstd.COMPRESSION_LEVEL, zstd.CHECKSUM)
