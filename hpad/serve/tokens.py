"""Bearer tokens of a file."""

import hashlib
import hmac
from pathlib import Path

from hpad.serve.errors import ServeError

LONGEST = 8192
"""Bytes of a token; service accounts' have about a thousand."""
_MOST = 64
"""Tokens in a file: each request is compared with all of them."""


class Tokens:
    """The tokens of a file, a line each, so that an old and a new one can both be good for a while."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._digests: tuple[bytes, ...] = ()

    def open(self) -> None:
        """Read the file for the first time; blocks. Raises ServeError, also for a file without any token."""
        self._digests = self._read()

    def refresh(self) -> bool:
        """Whether the file holds others than before; blocks. Raises ServeError: the last good ones stay in use."""
        before, self._digests = self._digests, self._read()
        return self._digests != before

    def accept(self, token: str) -> bool:
        """Whether it is one of them; takes the same time wherever a wrong one differs."""
        digest, right = _digest(token.encode()), False
        for known in self._digests:
            right |= hmac.compare_digest(digest, known)
        return right

    def _read(self) -> tuple[bytes, ...]:
        try:
            with self._file.open("rb") as content:
                lines = content.read(_MOST * LONGEST).split(b"\n")
        except OSError as error:
            raise ServeError(f"listen_token_file: {self._file}: {error.strerror}") from None
        tokens = [line.strip() for line in lines if line.strip()]
        if not 0 < len(tokens) <= _MOST:
            raise ServeError(
                f"listen_token_file: {self._file}: holds {len(tokens)} tokens; 1 to {_MOST} are needed, a line each"
            )
        return tuple(map(_digest, tokens))


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
