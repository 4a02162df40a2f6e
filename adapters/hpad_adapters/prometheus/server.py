"""The settings that name one server with the HTTP API of Prometheus, and how it is asked."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

import msgspec

from hpad.adapter_http import HttpLoginSettings, url_error


class PrometheusServer(HttpLoginSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields that each source on such a server has: its address, credentials, TLS and limits."""

    timeout_field: ClassVar[str] = "query_timeout"
    renamed: ClassVar[Mapping[str, str]] = {"tls": "ca, cert, key, server_name and insecure"}

    url: str
    params: dict[str, str] = msgspec.field(default_factory=dict)
    method: Literal["POST", "GET"] = "POST"
    query_timeout: str = "5s"
    concurrency: Annotated[int, msgspec.Meta(ge=1)] = 8

    def __repr__(self) -> str:
        return f"{type(self).__name__}(url={self.url!r}, …)"

    def errors(self) -> Iterator[str]:
        """Yields the errors in the fields."""
        yield from _url_errors(self.url)
        yield from super().errors()


def _url_errors(url: str) -> Iterator[str]:
    if error := url_error(url, ("http", "https"), "http://prometheus:9090"):
        yield f"url: {error}"
    elif "?" in url or "#" in url:
        yield "url: write parameters under params"
