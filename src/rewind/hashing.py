"""Hashes of files, bytes and plain values: all that Rewind compares, caches by or writes into records.

SHA-256 tells whether content is the same; CRC-32 is faster, and finds only accidental damage. Digests are in files and
records that users have, so another encoding of the same values would make all of them new.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path

SHORT_DIGITS = 16
"""Hex digits of a short hash: 64 bits, so no two of many millions of values are likely to share one."""


class Sha256:
    """The SHA-256 of content that comes in pieces."""

    def __init__(self) -> None:
        self._state = hashlib.sha256()

    def update(self, content: bytes | memoryview) -> None:
        self._state.update(content)

    def hex(self) -> str:
        """64 hex digits."""
        return self._state.hexdigest()

    def short(self) -> str:
        """The first 16 hex digits."""
        return self.hex()[:SHORT_DIGITS]


def sha256_hex(*contents: bytes) -> str:
    """SHA-256 of bytes, one after the other: 64 hex digits."""
    return hashlib.sha256(b"".join(contents)).hexdigest()


def short_hash(*contents: bytes) -> str:
    """The first 16 hex digits of :func:`sha256_hex`.

    >>> short_hash(b"a", b"bc") == short_hash(b"abc") == sha256_hex(b"abc")[:16]
    True
    """
    return sha256_hex(*contents)[:SHORT_DIGITS]


def stable_hash(*parts: object) -> str:
    """A short hash (16 hex digits) of JSON-able values, the same in every process; keys of dicts in any order.

    >>> stable_hash({"seed": 0, "size": 32}) == stable_hash({"size": 32, "seed": 0})
    True
    """
    return short_hash(json.dumps(parts, sort_keys=True, default=str).encode())


def sha256_of(path: str | Path) -> str:
    """SHA-256 of a file, 64 hex digits; memory holds a small part of it at a time."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def crc32_of(path: str | Path) -> int:
    """CRC-32 of a file, faster than SHA-256: finds accidental damage, not manipulation."""
    value, buffer = 0, memoryview(bytearray(2**20))  # one buffer for all reads of 1 MiB
    with Path(path).open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            value = zlib.crc32(buffer[:count], value)
    return value


def content_key(*contents: bytes) -> bytes:
    """A key for equal contents within one process; it is never written to a file."""
    return hashlib.blake2b(b"".join(contents), digest_size=16).digest()
