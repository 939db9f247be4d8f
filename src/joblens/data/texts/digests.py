"""SHA-1 and MD5 of very many short pieces of one block of bytes. Every step is done for thousands of pieces
at once, which takes a fraction of the time of as many calls of hashlib. They name shingles here; nothing is
kept secret by them."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

_AT_ONCE = 16384  # pieces: what is worked on stays in the caches
_FEW = 1024  # pieces of one length in blocks for which hashlib is no slower
_MOST_BLOCKS = 8  # of 64 bytes; hashlib is good at long pieces
_PADDING = 64

_SHA1_START = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0)
_SHA1_CONSTANTS = (0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6)
_MD5_START = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
_MD5_CONSTANTS = tuple(int(abs(np.sin(i + 1)) * 2**32) for i in range(64))
_MD5_TURNS = ((7, 12, 17, 22), (5, 9, 14, 20), (4, 11, 16, 23), (6, 10, 15, 21))


def padded(data: Any) -> Any:
    """With room behind it: blocks are read as a whole."""
    return np.concatenate((data, np.zeros(_PADDING, np.uint8)))


def sha1_32(data: Any, starts: Any, lengths: Any) -> Any:
    """The first four bytes of each piece's SHA-1, as a little-endian number (uint32). `data` is padded."""
    return _in_groups(data, starts, lengths, np.uint32, _sha1_of_blocks, _sha1_of_one)


def md5_64(data: Any, starts: Any, lengths: Any) -> Any:
    """The first eight bytes of each piece's MD5, as a big-endian number (uint64). `data` is padded."""
    return _in_groups(data, starts, lengths, np.uint64, _md5_of_blocks, _md5_of_one)


def _in_groups(
    data: Any, starts: Any, lengths: Any, kind: Any, many: Callable[..., Any], one: Callable[[Any], int]
) -> Any:
    """Pieces of as many blocks together."""
    found = np.empty(len(starts), kind)
    blocks = (lengths + 8) // 64 + 1
    for count in np.flatnonzero(np.bincount(blocks)).tolist() if len(blocks) else ():
        members = np.flatnonzero(blocks == count)
        if count > _MOST_BLOCKS or len(members) < _FEW:
            view = memoryview(data)
            found[members] = [one(view[starts[i] : starts[i] + lengths[i]]) for i in members.tolist()]
            continue
        for first in range(0, len(members), _AT_ONCE):
            chosen = members[first : first + _AT_ONCE]
            found[chosen] = many(data, starts[chosen], lengths[chosen], count)
    return found


def _tables() -> tuple[Any, Any]:
    """By how many bytes of a piece are in a block (-1: it ended in an earlier one): what to keep of the
    block, and what to put behind the end."""
    keep = np.zeros((66, 64), np.uint8)
    mark = np.zeros((66, 64), np.uint8)
    for bytes_left in range(65):
        keep[bytes_left + 1, :bytes_left] = 0xFF
        if bytes_left < 64:
            mark[bytes_left + 1, bytes_left] = 0x80
    return keep.view("<u4"), mark.view("<u4")


_KEEP, _MARK = _tables()


def _block(data: Any, starts: Any, lengths: Any, number: int) -> Any:
    """Block `number` of each piece with the end marked: uint32 [16, pieces] in the order of the bytes."""
    every = np.ndarray((len(data) - _PADDING + 1,), "V64", buffer=data, strides=(1,))
    places = np.minimum(starts + 64 * number, len(every) - 1)  # of ended pieces nothing is kept anyway
    raw = every[places].view("<u4").reshape(-1, 16)
    left = np.clip(lengths - 64 * number, -1, 64) + 1
    raw &= _KEEP[left]
    raw |= _MARK[left]
    return raw.T


def _rotated(values: Any, left: Any, right: Any, spare: Any, out: Any) -> None:
    np.right_shift(values, right, out=spare)
    np.left_shift(values, left, out=out)
    np.bitwise_or(out, spare, out=out)


def _sha1_of_one(piece: Any) -> int:
    return int.from_bytes(hashlib.sha1(piece, usedforsecurity=False).digest()[:4], "little")


def _sha1_of_blocks(data: Any, starts: Any, lengths: Any, blocks: int) -> Any:
    state = [np.full(len(starts), word, np.uint32) for word in _SHA1_START]
    words = np.empty((32, len(starts)), np.uint32)
    for number in range(blocks):
        words[:16] = _block(data, starts, lengths, number)
        words[:16].byteswap(inplace=True)
        if number == blocks - 1:
            words[15] = (lengths * 8).astype(np.uint32)
        after = _sha1_rounds(words, state)
        state = [before + now for before, now in zip(state, after, strict=True)]
    return state[0].byteswap()


def _sha1_rounds(words: Any, state: list[Any]) -> list[Any]:
    """`words`: room for 32, the first 16 are the block's."""
    a, b, c, d, e = state
    size = len(a)
    left, right = np.array([[5], [30]], np.uint32), np.array([[27], [2]], np.uint32)
    spare, mixed = np.empty((2, size), np.uint32), np.empty(size, np.uint32)
    rooms = np.empty((8, 2, size), np.uint32)  # a value is looked at in the six rounds after its own
    b_turned = np.empty(size, np.uint32)
    _rotated(b, np.uint32(30), np.uint32(2), mixed, b_turned)
    for number in range(80):
        if number and number % 16 == 0:
            _next_sha1_words(words)
        _sha1_choice(number // 20, b, c, d, mixed, spare[0])
        mixed += e
        mixed += words[number % 16]
        mixed += np.uint32(_SHA1_CONSTANTS[number // 20])
        turned = rooms[number % 8]
        _rotated(a, left, right, spare, turned)
        turned[0] += mixed
        a, b, c, d, e, b_turned = turned[0], a, b_turned, c, d, turned[1]
    return [a, b, c, d, e]


def _sha1_choice(quarter: int, b: Any, c: Any, d: Any, out: Any, spare: Any) -> None:
    if quarter == 0:  # c where b is set, d elsewhere
        np.bitwise_xor(c, d, out=out)
        np.bitwise_and(out, b, out=out)
        np.bitwise_xor(out, d, out=out)
    elif quarter == 2:  # what most of the three say
        np.bitwise_xor(b, c, out=out)
        np.bitwise_and(out, d, out=out)
        np.bitwise_and(b, c, out=spare)
        np.bitwise_xor(out, spare, out=out)
    else:
        np.bitwise_xor(b, c, out=out)
        np.bitwise_xor(out, d, out=out)


def _next_sha1_words(words: Any) -> None:
    """The next 16, from the last 16; three at a time, as none of three depends on the others."""
    spare = np.empty((3, words.shape[1]), np.uint32)
    for first in range(0, 16, 3):
        count = min(3, 16 - first)
        new = words[16 + first : 16 + first + count]
        np.bitwise_xor(words[first : first + count], words[first + 2 : first + 2 + count], out=new)
        new ^= words[first + 8 : first + 8 + count]
        new ^= words[first + 13 : first + 13 + count]
        _rotated(new, np.uint32(1), np.uint32(31), spare[:count], new)
    words[:16] = words[16:]


def _md5_of_one(piece: Any) -> int:
    return int.from_bytes(hashlib.md5(piece, usedforsecurity=False).digest()[:8], "big")


def _md5_of_blocks(data: Any, starts: Any, lengths: Any, blocks: int) -> Any:
    state = [np.full(len(starts), word, np.uint32) for word in _MD5_START]
    for number in range(blocks):
        words = np.ascontiguousarray(_block(data, starts, lengths, number))
        if number == blocks - 1:
            words[14] = (lengths * 8).astype(np.uint32)
        after = _md5_rounds(words, state)
        state = [before + now for before, now in zip(state, after, strict=True)]
    high, low = (state[i].byteswap().astype(np.uint64) for i in (0, 1))
    return high << np.uint64(32) | low


def _md5_rounds(words: Any, state: list[Any]) -> list[Any]:
    a, b, c, d = state
    mixed, spare = np.empty_like(a), np.empty_like(a)
    for number in range(64):
        quarter = number // 16
        place = ((1, 0), (5, 1), (3, 5), (7, 0))[quarter]
        _md5_choice(quarter, b, c, d, mixed)
        mixed += a
        mixed += words[(number * place[0] + place[1]) % 16]
        mixed += np.uint32(_MD5_CONSTANTS[number])
        turn = _MD5_TURNS[quarter][number % 4]
        turned = np.empty_like(a)
        _rotated(mixed, np.uint32(turn), np.uint32(32 - turn), spare, turned)
        turned += b
        a, b, c, d = d, turned, b, c
    return [a, b, c, d]


def _md5_choice(quarter: int, b: Any, c: Any, d: Any, out: Any) -> None:
    if quarter == 0:
        np.bitwise_xor(c, d, out=out)
        np.bitwise_and(out, b, out=out)
        np.bitwise_xor(out, d, out=out)
    elif quarter == 1:
        np.bitwise_xor(b, c, out=out)
        np.bitwise_and(out, d, out=out)
        np.bitwise_xor(out, c, out=out)
    elif quarter == 2:
        np.bitwise_xor(b, c, out=out)
        np.bitwise_xor(out, d, out=out)
    else:
        np.bitwise_not(d, out=out)
        np.bitwise_or(out, b, out=out)
        np.bitwise_xor(out, c, out=out)
