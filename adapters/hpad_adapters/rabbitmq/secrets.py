"""Passwords, tokens, headers and certificates: from the configuration, the environment, or files."""

import asyncio
import os
import ssl
from collections.abc import Iterable
from pathlib import Path

from hpad.adapter import AdapterError
from hpad_adapters.rabbitmq.settings import Elsewhere, Settings

_UNFIT = "\r\n\0"
_Stamp = tuple[int, int, int]
_APART = ("password", "client_secret", "bearer_token")


async def text(field: str, value: str | Elsewhere) -> str:
    """The value, wherever it is kept; raises AdapterError naming the file or variable that is not there."""
    if isinstance(value, str):
        return value
    if value.env:
        if value.env not in os.environ:
            raise AdapterError(f"{_setting(field, 'env')}: the environment has no variable {value.env}")
        return os.environ[value.env]
    return await asyncio.to_thread(_content, field, value.file)


async def headers(settings: Settings) -> dict[str, str]:
    """The headers that the operator wants to be sent; raises AdapterError."""
    found = {name: await text(f"headers: {name}", value) for name, value in settings.headers.items()}
    for name, value in found.items():
        if any(character in value for character in _UNFIT):
            raise AdapterError(f"headers: {name}: what is there holds a line break, so that no header can carry it")
    return found


class Tls:
    """The TLS context of one source, made when first needed, and again when its files change."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._files = tuple(file for file in (settings.ca, settings.cert, settings.key) if file)
        self._made: tuple[list[_Stamp], ssl.SSLContext] | None = None

    async def context(self) -> ssl.SSLContext:
        """Raises AdapterError naming the files that cannot be used."""
        if self._made is not None and not self._files:
            return self._made[1]
        stamps = await asyncio.to_thread(_stamps, self._files)
        if self._made is None or self._made[0] != stamps:
            password = await text("key_password", self._settings.key_password)
            self._made = stamps, await asyncio.to_thread(_tls_context, self._settings, password)
        return self._made[1]


def _stamps(files: Iterable[str]) -> list[_Stamp]:
    try:
        return [(status.st_mtime_ns, status.st_ino, status.st_size) for status in map(os.stat, files)]
    except OSError as error:
        raise AdapterError(f"ca, cert or key cannot be used ({error.filename}): {error.strerror}") from None


def _tls_context(settings: Settings, password: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca or None)
        if settings.cert:  # a password that is given, even if empty, keeps OpenSSL from asking the terminal
            context.load_cert_chain(settings.cert, settings.key or None, password)
    except OSError as error:  # ssl.SSLError among them
        files = ", ".join(file for file in (settings.ca, settings.cert, settings.key) if file)
        raise AdapterError(f"ca, cert or key cannot be used ({files}): {error.strerror or error}") from None
    if settings.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _content(field: str, file: str) -> str:
    try:
        return Path(file).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise AdapterError(f"{_setting(field, 'file')} {file} cannot be read: {why}") from None


def _setting(field: str, place: str) -> str:
    """The name of the setting that says where the value is."""
    return f"{field}_{place}" if field in _APART else field
