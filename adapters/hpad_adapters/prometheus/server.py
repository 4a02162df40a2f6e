"""The settings that name one server with the HTTP API of Prometheus, and how it is asked."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

import msgspec

from hpad.adapter import positive_duration
from hpad.adapter_http import HttpOptions, Secret, SecretRef, TlsOptions, secret, secret_error, url_error


class PrometheusServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields that each source on such a server has: its address, credentials, TLS and limits."""

    renamed: ClassVar[Mapping[str, str]] = {"tls": "ca, cert, key, server_name and insecure"}

    url: str
    username: str = ""
    password: str = ""
    password_file: str = ""
    password_env: str = ""
    bearer_token: str = ""
    bearer_token_file: str = ""
    bearer_token_env: str = ""
    headers: dict[str, str | SecretRef] = {}
    params: dict[str, str] = {}
    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""
    insecure: bool = False
    proxy: str = ""
    method: Literal["POST", "GET"] = "POST"
    query_timeout: str = "5s"
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = 16 << 20
    concurrency: Annotated[int, msgspec.Meta(ge=1)] = 8

    def __post_init__(self) -> None:
        """Raises ValueError with a line for each error."""
        if found := list(self.errors()):
            raise ValueError("\n".join(found))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(url={self.url!r}, …)"

    def errors(self) -> Iterator[str]:
        """Yields the errors in the fields."""
        yield from _url_errors(self.url)
        yield from self._credential_errors()
        for check in (self.http_options, lambda: positive_duration("query_timeout", self.query_timeout)):
            try:
                check()
            except ValueError as error:
                yield str(error)

    def http_options(self, timeout: float = 5.0) -> HttpOptions:
        """Returns the options of requests, with a timeout in seconds; raises ValueError."""
        return HttpOptions(
            headers=self.headers,
            username=self.username,
            password=self._password,
            bearer_token=self._bearer_token,
            tls=TlsOptions.of(self),
            proxy=self.proxy,
            timeout=timeout,
            connect_timeout=timeout,
            max_bytes=self.max_bytes,
        )

    @property
    def _password(self) -> Secret:
        return secret(self.password, self.password_file, self.password_env)

    @property
    def _bearer_token(self) -> Secret:
        return secret(self.bearer_token, self.bearer_token_file, self.bearer_token_env)

    def _credential_errors(self) -> Iterator[str]:
        several = [error for name in ("password", "bearer_token") if (error := secret_error(self, name))]
        if several:
            yield from several
        elif bool(self.username) != bool(self._password):
            yield "username and password go together"
        elif self._password and self._bearer_token:
            yield "give username and password, or bearer_token, not both"


def _url_errors(url: str) -> Iterator[str]:
    if error := url_error(url, ("http", "https"), "http://prometheus:9090"):
        yield f"url: {error}"
    elif "?" in url or "#" in url:
        yield "url: write parameters under params"
