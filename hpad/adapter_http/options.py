"""The options of requests, and settings that have them: secrets, TLS that follows its files, proxy and limits.

A secret is text in the settings, the content of a file, or an environment variable. Files and variables are read again
for each use, so a rotated secret needs no restart. One trailing line end ("\\n" or "\\r\\n") is removed from both; any
other white space belongs to the secret. Errors of options are lines of the form "field: text".
"""

import asyncio
import os
import re
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

import msgspec

from hpad.adapter import AdapterError, hide, opened, positive_duration, public, reason, shown
from hpad.files import regular

_LARGEST = 1 << 20
"""Bytes of a file with a secret."""


class SecretRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A secret that is kept outside the settings.

    file: the file that holds it, read again for each use; env: the environment variable that holds it.
    """

    file: str = ""
    env: str = ""

    def __post_init__(self) -> None:
        if bool(self.file) == bool(self.env):
            raise ValueError("give one of file and env")


Secret = str | SecretRef


def secret(value: str, file: str, env: str) -> Secret:
    """Returns the secret of three settings of which at most one is set, such as `password`, `_file` and `_env`."""
    return SecretRef(file=file, env=env) if file or env else value


def secret_error(settings: object, name: str) -> str:
    """Returns an error, "field: text", if several of `name`, `name_file` and `name_env` are set; else ""."""
    names = (name, f"{name}_file", f"{name}_env")
    present = [each for each in names if getattr(settings, each)]
    return f"{present[1]}: give one of {names[0]}, {names[1]} and {names[2]}" if len(present) > 1 else ""


def duration_error(name: str, text: str) -> str:
    """Returns why a setting is no duration above zero, as "field: text"; "" if it is one."""
    try:
        positive_duration(name, text)
    except ValueError as error:
        return str(error)
    return ""


async def read_secrets(secrets: Mapping[str, Secret]) -> dict[str, str]:
    """Returns the text of each secret by the name of its setting, which errors repeat.

    Errors and log lines of the source lose what files and variables hold. Files are read in a thread. Raises
    AdapterError naming the file or variable that is absent, empty or unreadable.
    """

    def read_all() -> dict[str, str]:
        return {setting: read_secret(setting, each) for setting, each in secrets.items()}

    # Most batches need no file, and a switch to a thread costs more than the rest of such a call.
    if any(isinstance(each, SecretRef) and each.file for each in secrets.values()):
        return await asyncio.to_thread(read_all)
    return read_all()


def read_secret(setting: str, value: Secret) -> str:
    """Returns the text of one secret; blocks. Raises AdapterError as `read_secrets` does."""
    if isinstance(value, str):
        return value  # hpad hides it by the name of its field: other texts of the settings may be in any message
    text = _text(setting, value)
    hide(text)
    return text


def _text(setting: str, value: SecretRef) -> str:
    if value.env:
        where, text = f"the environment variable {value.env}", os.environ.get(value.env)
        if text is None:
            raise AdapterError(f"{setting}: {where} is not set")
        if not _is_text(text):
            raise AdapterError(f"{setting}: {where} is not UTF-8 text")
    else:
        where, text = value.file, _content(setting, value.file)
    # Without the first condition, a lone "\r" at the end would be removed as well.
    text = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
    if not text:
        raise AdapterError(f"{setting}: {where} is empty")
    return text


def _is_text(value: str) -> bool:
    """Returns whether UTF-8 can encode the value of a variable, in which Python keeps other bytes as surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _content(setting: str, file: str) -> str:
    try:
        # Text mode would turn "\r\n" within the secret into "\n". A pipe would hold the thread for ever, at each read.
        with opened(Path(file)) as content:
            found = content.read(_LARGEST + 1)
        if len(found) <= _LARGEST:
            return found.decode()
        fault = f"it is larger than {_LARGEST >> 20} MiB"
    except UnicodeDecodeError:
        fault = "it is not UTF-8 text"
    except OSError as error:
        fault = error.strerror or reason(error)
    raise AdapterError(f"{setting}: {file} cannot be read: {fault}")


class TlsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files and names for TLS: the authorities to trust, and the client certificate with its key and password."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    key_password: Secret = ""
    server_name: str = ""
    insecure: bool = False

    @classmethod
    def of(cls, settings: object) -> "TlsOptions":
        """Returns the fields of these names in the settings of a source, which may lack some."""
        return cls(**{name: getattr(settings, name) for name in cls.__struct_fields__ if hasattr(settings, name)})

    @property
    def error(self) -> str:
        """Why the options contradict each other, as "field: text"; "" if they do not."""
        return "key: there is a key, but no cert for it" if self.key and not self.cert else ""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are named."""
        return tuple(file for file in (self.ca, self.cert, self.key) if file)


class Tls:
    """The TLS context of one source, made when it is first needed and again when one of its files has changed."""

    def __init__(self, options: TlsOptions) -> None:
        self._options = options
        self._loaded: tuple[list[tuple[int, int, int]], ssl.SSLContext] | None = None
        self._lock = asyncio.Lock()

    async def context(self) -> ssl.SSLContext:
        """Returns the context for the present files; raises AdapterError naming the files that cannot be used."""
        if self._loaded is not None and not self._options.files:
            return self._loaded[1]
        async with self._lock:
            return await asyncio.to_thread(self._current)

    def _current(self) -> ssl.SSLContext:
        try:
            # The state is taken before the files are read, so that a file replaced meanwhile is loaded at the next use.
            # OpenSSL would hold the thread for ever at a pipe.
            state = [(found.st_mtime_ns, found.st_ino, found.st_size) for found in map(regular, self._options.files)]
            if self._loaded is not None and self._loaded[0] == state:
                return self._loaded[1]
            context = _tls_context(self._options)
        except OSError as error:  # ssl.SSLError is a subclass
            files = error.filename or ", ".join(self._options.files)
            fault = error.strerror or reason(error)
            raise AdapterError(f"ca, cert or key: {files} cannot be used: {fault}") from None
        self._loaded = state, context
        return context


def _tls_context(options: TlsOptions) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.ca or None)
    if options.cert:
        # An empty password keeps OpenSSL from prompting for one on the terminal.
        context.load_cert_chain(options.cert, options.key or None, read_secret("key_password", options.key_password))
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


_PLACEHOLDERS: Final = " <>(){}$"
"""Characters that no host has, but a placeholder: `<host>`, `$(HOST)`, `{{ .Values.host }}`."""
_CREDENTIALS: Final = "contains credentials: write them as settings of their own"


def host_and_port(text: str, example: str, default: int = 0) -> tuple[str, int]:
    """Parses "host", "host:port" or "[IPv6]:port"; with a default of 0 the port is needed.

    Raises ValueError, which repeats no text that may hold a password.
    """
    try:
        parts = urllib.parse.urlsplit(f"//{text}")
        host, port = parts.hostname, default if parts.port is None else parts.port
    except ValueError:
        host, port = None, 0
    if host and port and parts.netloc == text and not set(f"@{_PLACEHOLDERS}") & set(text):
        return host, port
    raise ValueError(_CREDENTIALS if "@" in text else f'{shown(public(text))} is not of the form "{example}"')


def hosts_error(field: str, texts: Sequence[str], example: str, default: int = 0) -> str:
    """Returns why a setting is no list of addresses as `host_and_port` reads them, as "field: text"; "" if it is."""
    try:
        for text in texts:
            host_and_port(text, example, default)
    except ValueError as error:
        return f"{field}: {error}"
    return "" if texts else f'{field}: is empty: name a server or several, such as "{example}"'


def url_list(urls: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the URLs of a setting that takes one or several, without a slash at the end; () for an empty text."""
    if isinstance(urls, str):
        urls = [urls] if urls else []
    return tuple(url.rstrip("/") for url in urls)


def url_error(
    url: str, schemes: tuple[str, ...], example: str, *, query: bool = True, instead_of_path: str = ""
) -> str:
    """Returns why a setting is not the URL of a server, "" if it is. A URL that may hold a password is not repeated.

    `query`: it may have a query or fragment. `instead_of_path`: what to write if it may have no path, nor a query.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        bad_place = parts.port == 0 or not parts.hostname or set(_PLACEHOLDERS) & set(parts.netloc)
    except ValueError:
        return "is not a URL, or its port is not a number"
    if "@" in parts.netloc:
        return _CREDENTIALS
    # As written: TLS depends on the scheme, and code that compares it knows no capitals, nor spaces before it.
    if url.partition(":")[0] not in schemes or bad_place:
        return f'{shown(public(url))} is not of the form "{example}"'
    if instead_of_path and parts.path.strip("/"):
        return f"ends in a path: {instead_of_path}"
    if (instead_of_path or not query) and set("?#") & set(url):
        return "ends in a query or fragment: leave that out"
    return ""


class OAuth2(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Tokens by the client credentials grant (RFC 6749, section 4.4).

    token_url: of the identity provider; client_id: the name of hpad there; client_secret: its secret;
        client_secret_file: a file that holds it; client_secret_env: an environment variable that holds it.
    scopes, params: further parameters of the request, such as {audience: rabbitmq}.
    client_auth: how the client authenticates: basic (a header), or body (fields of the form).
    """

    token_url: str
    client_id: str
    client_secret: str = ""
    client_secret_file: str = ""
    client_secret_env: str = ""
    scopes: list[str] = []
    params: dict[str, str] = {}
    client_auth: Literal["basic", "body"] = "basic"

    def __post_init__(self) -> None:
        if error := url_error(self.token_url, ("http", "https"), "https://login.example.com/oauth/token"):
            raise ValueError(f"token_url: {error}")
        if error := secret_error(self, "client_secret"):
            raise ValueError(error)
        if not self.secret:
            raise ValueError("client_secret: give one of client_secret, client_secret_file and client_secret_env")

    def __repr__(self) -> str:
        return f"OAuth2(token_url={public(self.token_url)!r}, client_id={self.client_id!r}, …)"

    @property
    def secret(self) -> Secret:
        """The secret of the client."""
        return secret(self.client_secret, self.client_secret_file, self.client_secret_env)


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How requests are sent, and what is accepted as an answer. Raises ValueError with a line for each error.

    `headers` and `params` (of the URL) are sent with each request. `username` with `password`, `bearer_token` and
    `oauth2` exclude each other. `proxy` is the URL of an HTTP proxy
    without credentials. `timeout` and `connect_timeout` are in seconds, for one request and for its connection.
    """

    headers: Mapping[str, Secret] = {}
    params: Mapping[str, Secret] = {}
    username: str = ""
    password: Secret = ""
    bearer_token: Secret = ""
    oauth2: OAuth2 | None = None
    tls: TlsOptions = TlsOptions()
    proxy: str = ""
    timeout: float = 5.0
    connect_timeout: float = 5.0
    max_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        errors = [self.tls.error] if self.tls.error else []
        if self.proxy and (error := url_error(self.proxy, ("http",), "http://proxy:3128")):
            errors.append(f"proxy: {error}")
        texts = (text for pair in self.headers.items() for text in pair if isinstance(text, str))
        if not all(map(fits_header, texts)):
            errors.append("headers: a line break or control character cannot be part of a header")
        refuse(*errors)


_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def refuse(*errors: str) -> None:
    """Raises ValueError with a line for each error that is not empty."""
    if any(errors):
        raise ValueError("\n".join(filter(None, errors)))


def fits_header(text: str) -> bool:
    """Returns whether a header can carry the text. A line break in a secret would start another header.

    aiohttp refuses other control characters, too, with an exception of any kind.
    """
    return _CONTROL.search(text) is None


# The fields that settings of sources over HTTP have in common. The Settings of an adapter inherit them, and name them
# in its docstring.


class TlsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields of TLS: PEM files, and whether any certificate is trusted. Subclasses describe them.

    As a text it has no values: those of subclasses may be secrets.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    insecure: bool = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    @property
    def tls_options(self) -> TlsOptions:
        """The options of TLS."""
        return TlsOptions.of(self)


class HttpSettings(TlsSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How requests are sent. A subclass yields further `errors`.

    `timeout_field` names the field of the subclass with the time for one request.
    """

    timeout_field: ClassVar[str] = "request_timeout"

    headers: dict[str, str | SecretRef] = {}
    key_password: str | SecretRef = ""
    server_name: str = ""
    proxy: str = ""
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = 16 << 20

    def __post_init__(self) -> None:
        """Raises ValueError with a line for each error."""
        refuse(*self.errors())

    def errors(self) -> Iterator[str]:
        """Yields the errors in the fields, "field: text" each."""
        for check in (lambda: self.timeout_seconds, lambda: self.http_options(1.0)):
            try:
                check()
            except ValueError as error:
                yield str(error)

    @property
    def timeout_seconds(self) -> float:
        """The time for one request, in seconds; raises ValueError."""
        return positive_duration(self.timeout_field, getattr(self, self.timeout_field)).total_seconds()

    def http_options(self, timeout: float = 0.0) -> HttpOptions:
        """Returns the options of requests, with `timeout` in seconds in place of their own; raises ValueError."""
        seconds = timeout or self.timeout_seconds
        return HttpOptions(
            headers=self.headers,
            tls=self.tls_options,
            proxy=self.proxy,
            timeout=seconds,
            connect_timeout=seconds,
            max_bytes=self.max_bytes,
        )


class HttpLoginSettings(HttpSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How requests are sent, and the credentials of one user: a password, a token, or OAuth2.

    `needs_password`: a user name without a password is an error.
    """

    needs_password: ClassVar[bool] = True

    username: str = ""
    password: str = ""
    password_file: str = ""
    password_env: str = ""
    bearer_token: str = ""
    bearer_token_file: str = ""
    bearer_token_env: str = ""
    oauth2: OAuth2 | None = None

    @property
    def secret(self) -> Secret:
        """The password of the user."""
        return secret(self.password, self.password_file, self.password_env)

    @property
    def token(self) -> Secret:
        """The bearer token, "" where OAuth2 gives one."""
        return secret(self.bearer_token, self.bearer_token_file, self.bearer_token_env)

    def errors(self) -> Iterator[str]:
        """Yields the errors in the fields, "field: text" each."""
        yield from filter(None, (secret_error(self, name) for name in ("password", "bearer_token")))
        if self.secret and not self.username:
            yield "username: is missing, but a password is given"
        if self.username and not self.secret and self.needs_password:
            yield f'password: is missing for user "{self.username}"; write password_file or password_env'
        if ":" in self.username:
            yield "username: basic authentication cannot send a user name with a colon"
        if sum(map(bool, (self.username, self.token, self.oauth2))) > 1:
            yield "username: give a user with a password, or a bearer_token, or oauth2, not two of them"
        yield from super().errors()

    def http_options(self, timeout: float = 0.0) -> HttpOptions:
        """Returns the options of requests, with `timeout` in seconds in place of their own; raises ValueError."""
        return msgspec.structs.replace(
            super().http_options(timeout),
            username=self.username,
            password=self.secret,
            bearer_token=self.token,
            oauth2=self.oauth2,
        )
