"""zstd without the parameters and files that its package also defines: these would cost every job's start
0.8 ms."""

import sys
from typing import TYPE_CHECKING, Any

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdCompressor, ZstdDecompressor, ZstdError
elif TYPE_CHECKING:
    from backports.zstd import ZstdCompressor, ZstdDecompressor, ZstdError
else:
    from importlib.machinery import PathFinder

    def _extension() -> Any:
        """Returns the extension module of the package, which the package itself will use too."""
        name, spec = "backports.zstd._zstd", None
        if name not in sys.modules:
            for part in ("backports", "backports.zstd", name):
                spec = PathFinder.find_spec(part, spec and spec.submodule_search_locations)
            module = spec.loader.create_module(spec)
            spec.loader.exec_module(module)
            sys.modules[name] = module
        return sys.modules[name]

    try:
        _zstd = _extension()
        ZstdCompressor, ZstdDecompressor = _zstd.ZstdCompressor, _zstd.ZstdDecompressor
        ZstdError = _zstd.ZstdError
    except (ImportError, AttributeError):  # a package with other modules
        from backports.zstd import ZstdCompressor, ZstdDecompressor, ZstdError

__all__ = ["CHECKSUM", "COMPRESSION_LEVEL", "ZstdCompressor", "ZstdDecompressor", "ZstdError"]

COMPRESSION_LEVEL, CHECKSUM = 100, 201  # parameters, by the numbers of the library
