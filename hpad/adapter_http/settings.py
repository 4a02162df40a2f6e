"""The fields that settings of sources over HTTP have in common, with their checks.

The Settings of an adapter inherit them, and name them in its docstring.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

import msgspec

from hpad.adapter import positive_duration
from hpad.adapter_http.options import HttpOptions, OAuth2, Secret, SecretRef, TlsOptions, secret, secret_error


class HttpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How requests are sent. A subclass yields further `errors`.

    `timeout_field` names the field of the subclass with the time for one request.
    """

    timeout_field: ClassVar[str] = "request_timeout"

    headers: dict[str, str | SecretRef] = {}
    ca: str = ""
    cert: str = ""
    key: str = ""
    key_password: str | SecretRef = ""
    server_name: str = ""
    insecure: bool = False
    proxy: str = ""
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = 16 << 20

    def __post_init__(self) -> None:
        """Raises ValueError with a line for each error."""
        if found := list(self.errors()):
            raise ValueError("\n".join(found))

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
            tls=TlsOptions.of(self),
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
