"""One request to the broker over HTTP: credentials, TLS, fail-over, and a clear text for each way to fail."""

import asyncio
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import aiohttp
import msgspec
import yarl

from hpad.adapter import AdapterError, Context, parse_duration, read_part
from hpad_adapters.rabbitmq import http
from hpad_adapters.rabbitmq.http import Tokens
from hpad_adapters.rabbitmq.settings import Elsewhere, Settings

_MAX_BODY_BYTES = 32 * 2**20
_MAX_REASON = 200
JSON, TEXT = "application/json", "text/plain"
_EXPECTED = {
    JSON: "not JSON: is this the management API's address?",
    TEXT: "not text: is this the address of rabbitmq_prometheus?",
}


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
        self._client_timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=parse_duration(settings.connect_timeout).total_seconds()
        )
        self._nodes = list(settings.nodes)
        self._tls = http.Tls(settings)
        self._tokens = Tokens(settings.oauth2, context, self._tls, settings.timeout) if settings.oauth2 else None
        if settings.insecure:
            context.log.warning("certificates of the broker are not verified", source=context.name)

    def __str__(self) -> str:
        return f"rabbitmq at {self._nodes[0]}"

    async def get(
        self,
        path: str,
        parameters: Mapping[str, str] | Sequence[tuple[str, str]],
        *,
        vhost: str,
        content_type: str = JSON,
    ) -> bytes:
        """What is at `path` (percent-encoded); `vhost` is for the text of errors.

        Raises NotFound, or AdapterError naming the node and what is wrong.
        """
        errors: list[NoAnswer] = []
        for node in tuple(self._nodes):
            url = yarl.URL(f"{node}{path}?{urlencode(parameters)}", encoded=True)
            try:
                body = await self._get(node, url, vhost, content_type)
            except NoAnswer as error:
                errors.append(error)
                continue
            self._prefer(node)
            return body
        raise AdapterError("; ".join(error.message for error in errors))

    async def get_each(
        self,
        path: str,
        parameters: Mapping[str, str] | Sequence[tuple[str, str]],
        *,
        vhost: str,
        content_type: str = JSON,
    ) -> dict[str, bytes | NoAnswer]:
        """As get(), of every node, in the order of the settings; of one that gives no answer, why."""

        async def one(node: str) -> bytes | NoAnswer:
            try:
                url = yarl.URL(f"{node}{path}?{urlencode(parameters)}", encoded=True)
                return await self._get(node, url, vhost, content_type)
            except NoAnswer as error:
                return error

        nodes = self._settings.nodes
        return dict(zip(nodes, await asyncio.gather(*map(one, nodes)), strict=True))

    def _prefer(self, node: str) -> None:
        if self._nodes[0] != node:
            self._nodes.remove(node)
            self._nodes.insert(0, node)

    async def _get(self, node: str, url: yarl.URL, vhost: str, content_type: str) -> bytes:
        """A token that the broker no longer takes is replaced, once."""
        token = await self._token()
        response, body = await self._response(node, url, token)
        if response.status == 401 and self._tokens is not None:
            self._tokens.forget(token)
            response, body = await self._response(node, url, await self._token())
        return self._judged(node, response, body, vhost, content_type)

    async def _response(self, node: str, url: yarl.URL, token: str) -> tuple[aiohttp.ClientResponse, bytes]:
        headers = {"Accept": f"{JSON}, {TEXT}", **await http.headers(self._settings)}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        elif self._settings.username:
            password = await http.text("password", self._settings.secret)
            headers["Authorization"] = aiohttp.encode_basic_auth(self._settings.username, password, encoding="utf-8")
        tls = await self._tls.context() if url.scheme == "https" else True
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._http.get(
                    url,
                    headers=headers,
                    ssl=tls,
                    server_hostname=self._settings.server_name or None,
                    allow_redirects=False,
                    timeout=self._client_timeout,
                ) as response,
            ):
                return response, await _body(node, response)
        except TimeoutError:
            raise NoAnswer(f"rabbitmq at {node} did not answer within {self._timeout:g}s") from None
        except aiohttp.ClientError as error:
            raise NoAnswer(f"rabbitmq at {node} {http.reason(error)}") from None

    async def _token(self) -> str:
        if self._tokens is not None:
            return await self._tokens.token()
        if not self._settings.bearer_token_file:
            return ""
        return await http.text("bearer_token", Elsewhere(file=self._settings.bearer_token_file))

    def _judged(self, node: str, response: aiohttp.ClientResponse, body: bytes, vhost: str, content_type: str) -> bytes:
        """The body if it is an answer at all."""
        status = response.status
        if status in (401, 403):
            raise AdapterError(self._refused(node, status, body, vhost), lasting=True)
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
        if response.content_type != content_type:
            raise NoAnswer(f"rabbitmq at {node} answered {response.content_type}, {_EXPECTED[content_type]}")
        return body

    def _refused(self, node: str, status: int, body: bytes, vhost: str) -> str:
        user, said = self._settings.username, self._said(body)
        if self._tokens is not None or self._settings.bearer_token_file:
            return (
                f"rabbitmq at {node} refused the token ({status}{said}): it needs the scope of the tag "
                f'"monitoring" and one for vhost "{vhost}"'
            )
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


async def _body(node: str, response: aiohttp.ClientResponse) -> bytes:
    parts = bytearray()
    while part := await read_part(response):
        parts += part
        if len(parts) > _MAX_BODY_BYTES:
            raise NoAnswer(f"rabbitmq at {node} sent more than {_MAX_BODY_BYTES >> 20} MiB, too much for an answer")
    return bytes(parts)


def _problem(body: bytes) -> _Problem | None:
    try:
        return msgspec.json.decode(body, type=_Problem)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
