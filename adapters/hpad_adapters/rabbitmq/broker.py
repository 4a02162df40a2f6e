"""One request to the management API: credentials, TLS, fail-over, and a clear text for each way to fail."""

import asyncio
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

import aiohttp
import msgspec
import yarl

from hpad.adapter import AdapterError, Context
from hpad_adapters.rabbitmq.settings import Settings

_MAX_BODY_BYTES = 32 * 2**20
_MAX_REASON = 200


class NotFound(AdapterError):
    """RabbitMQ itself says 404: the queue or the vhost is not there."""


class NoAnswer(AdapterError):
    """This node gave no usable answer; another one may."""


class _Problem(msgspec.Struct):
    """RabbitMQ's own form of an error."""

    error: str
    reason: str | None = None


class Broker:
    """The nodes of one broker; the one that answered last is asked first."""

    def __init__(self, settings: Settings, context: Context) -> None:
        self._settings = settings
        self._http = context.http
        self._timeout = settings.timeout.total_seconds()
        self._nodes = list(settings.nodes)
        self._tls: ssl.SSLContext | None = None
        if settings.insecure:
            context.log.warning("certificates of the broker are not verified", source=context.name)

    def __str__(self) -> str:
        return f"rabbitmq at {self._nodes[0]}"

    async def get(self, path: str, parameters: Mapping[str, str], *, vhost: str) -> bytes:
        """The JSON text at `path` (percent-encoded); `vhost` is for the text of errors.

        Raises NotFound, or AdapterError naming the node and what is wrong.
        """
        errors: list[NoAnswer] = []
        for node in tuple(self._nodes):
            url = yarl.URL(f"{node}{path}?{urlencode(parameters)}", encoded=True)
            try:
                body = await self._get(node, url, vhost)
            except NoAnswer as error:
                errors.append(error)
                continue
            self._prefer(node)
            return body
        raise AdapterError("; ".join(error.message for error in errors))

    def _prefer(self, node: str) -> None:
        if self._nodes[0] != node:
            self._nodes.remove(node)
            self._nodes.insert(0, node)

    async def _get(self, node: str, url: yarl.URL, vhost: str) -> bytes:
        password = await self._password()
        headers = dict(self._settings.headers)
        if self._settings.username:
            headers["Authorization"] = aiohttp.encode_basic_auth(self._settings.username, password, encoding="utf-8")
        tls = await self._tls_context() if url.scheme == "https" else True
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._http.get(url, headers=headers, ssl=tls, allow_redirects=False) as response,
            ):
                return self._judged(node, response, await _body(node, response), vhost)
        except TimeoutError:
            raise NoAnswer(f"rabbitmq at {node} did not answer within {self._timeout:g}s") from None
        except aiohttp.ClientError as error:
            raise NoAnswer(f"rabbitmq at {node} {_reason(error)}") from None

    def _judged(self, node: str, response: aiohttp.ClientResponse, body: bytes, vhost: str) -> bytes:
        """The body if it is an answer at all."""
        status = response.status
        if status in (401, 403):
            raise AdapterError(self._refused(node, status, body, vhost))
        if status == 404 and _problem(body) is not None:
            raise NotFound(f"{self} does not have it", "spec")
        if 300 <= status < 400:
            raise NoAnswer(
                f"rabbitmq at {node} answered {status}, a redirect, which is not followed: configure the final address"
            )
        if status != 200:
            raise NoAnswer(f"rabbitmq at {node} answered {status} {response.reason or ''}".rstrip() + self._said(body))
        if not body.strip():
            raise NoAnswer(f"rabbitmq at {node} gave an empty answer")
        if response.content_type != "application/json":
            raise NoAnswer(
                f"rabbitmq at {node} answered {response.content_type}, not JSON: is this the management API's address?"
            )
        return body

    def _refused(self, node: str, status: int, body: bytes, vhost: str) -> str:
        user, said = self._settings.username, self._said(body)
        if not user:
            return f"rabbitmq at {node} answered {status}: it wants a user; configure username and password_file"
        refused = f'rabbitmq at {node} refused user "{user}" ({status}{said})'
        if "Login failed" in said:
            return f"{refused}: wrong user name or password"
        return (
            f'{refused}: it needs the tag "monitoring" and a permission on vhost "{vhost}", '
            'for which "^$" "^$" "^$" suffices'
        )

    def _said(self, body: bytes) -> str:
        """RabbitMQ's reason; an answer that is not of RabbitMQ's form is not repeated, for it may hold anything."""
        problem = _problem(body)
        text = (problem.reason or problem.error)[:_MAX_REASON] if problem is not None else ""
        secret = self._settings.password
        return f": {text.replace(secret, '***') if secret else text}" if text else ""

    async def _password(self) -> str:
        settings = self._settings
        if settings.password_file:
            try:
                return (await asyncio.to_thread(Path(settings.password_file).read_text, "utf-8")).rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
                raise AdapterError(f"password_file {settings.password_file} cannot be read: {why}") from None
        if settings.password_env:
            if settings.password_env not in os.environ:
                raise AdapterError(f"password_env: the environment has no variable {settings.password_env}")
            return os.environ[settings.password_env]
        return settings.password

    async def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await asyncio.to_thread(_tls_context, self._settings)
        return self._tls


def _tls_context(settings: Settings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca or None)
        if settings.cert:
            context.load_cert_chain(settings.cert, settings.key or None)
    except OSError as error:  # ssl.SSLError among them
        files = ", ".join(file for file in (settings.ca, settings.cert, settings.key) if file)
        raise AdapterError(f"ca, cert or key cannot be used ({files}): {error.strerror or error}") from None
    if settings.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _body(node: str, response: aiohttp.ClientResponse) -> bytes:
    parts = bytearray()
    async for part in response.content.iter_any():
        parts += part
        if len(parts) > _MAX_BODY_BYTES:
            raise NoAnswer(f"rabbitmq at {node} sent more than {_MAX_BODY_BYTES >> 20} MiB, too much for an answer")
    return bytes(parts)


def _problem(body: bytes) -> _Problem | None:
    try:
        return msgspec.json.decode(body, type=_Problem)
    except msgspec.DecodeError:
        return None


def _reason(error: aiohttp.ClientError) -> str:
    """What happened on the way, in words; never the exception's own text, which may hold the URL."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return "has a certificate that is not trusted: configure ca"
        case aiohttp.ClientConnectorSSLError():
            return "does not speak TLS as expected: is the address an http:// one?"
        case aiohttp.ClientConnectorDNSError():
            return "cannot be found: its host name does not resolve"
        case aiohttp.ClientConnectorError() if isinstance(error.os_error, ConnectionRefusedError):
            return "refused the connection"
        case aiohttp.ClientConnectorError():
            return (
                f"cannot be reached: {os.strerror(error.os_error.errno) if error.os_error.errno else 'no connection'}"
            )
        case aiohttp.ClientPayloadError():
            return "broke off in the middle of its answer"
        case aiohttp.ClientResponseError():
            return "did not answer in HTTP: is this the port of the management API (15672), not of AMQP (5672)?"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return "closed the connection without an answer"
    return f"could not be asked ({type(error).__name__})"
