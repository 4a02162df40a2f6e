"""Requests to the management API of a RabbitMQ broker, with fail-over between its nodes.

The node that answered last is tried first. The error of a refusal names the tag or permission that the user lacks.
"""

from collections.abc import Mapping
from urllib.parse import unquote, urlencode

import msgspec

from hpad.adapter import AdapterError, Context
from hpad.adapter_http import UNDECODABLE, Http, Request, RequestFailedError, Response, first_line, read_secrets
from hpad_adapters.rabbitmq.metric import ANY_VHOST
from hpad_adapters.rabbitmq.settings import Settings
from hpad_adapters.servers import Servers

_MAX_REASON = 200
_JSON = "application/json"
_USER_OF_A_TOKEN = "hpad"  # any name: RabbitMQ takes the token from the password, and the user from the token
_WRONG_LOGIN = ("Login failed", "Not_Authorized")
"""The reasons for a wrong user name or password in RabbitMQ 3.10, and in 4.0."""
KEEPS_SLASHES = 'a proxy in front must leave "%2F" in paths as it is (nginx: a proxy_pass without a path)'
_ODD_PATHS = (400, 404, 405, 406)
"""What RabbitMQ 3.10 and 4.0 answer, without a text, to a path that they do not know."""
_HIDDEN = "not_found"
"""The error with which RabbitMQ 4.3 hides a vhost from users without a permission on it: other 404 say otherwise."""
_REFUSALS = (400, 414)
"""Bad Request, and URI Too Long."""


def meant(vhost: str) -> str:
    """Returns which vhost is meant by one that is written as in a URL; "" if it is not."""
    name = unquote(vhost).strip("/") or "/"
    return f'; did you mean "{name}"?' if name != vhost else ""


class NotFoundError(AdapterError):
    """RabbitMQ itself answers 404: the queue or the vhost does not exist."""


class BrokerRefusedError(AdapterError):
    """RabbitMQ, or a proxy in front of it, does not accept the parameters."""


class _RefusedByNodeError(RequestFailedError):
    """One node answers so."""


def _none_answered(faults: list[RequestFailedError]) -> AdapterError:
    refused = any(isinstance(each, _RefusedByNodeError) for each in faults)
    return (BrokerRefusedError if refused else AdapterError)("; ".join(each.message for each in faults))


class _Problem(msgspec.Struct):
    """RabbitMQ's form of an error."""

    error: str
    reason: str | None = None


_PROBLEM = msgspec.json.Decoder(_Problem)


class RabbitmqBroker:
    """The nodes of one broker."""

    def __init__(self, settings: Settings, context: Context) -> None:
        self._settings = settings
        self._http = Http(context, settings.http_options())
        self._nodes = Servers(settings.nodes)

    def __str__(self) -> str:
        return f"rabbitmq at {self._nodes.order[0]}"

    async def get(self, path: str, parameters: Mapping[str, str], *, vhost: str) -> bytes:
        """Returns the JSON at `path` (percent-encoded) from the first node that answers; errors name `vhost`.

        Raises NotFoundError, BrokerRefusedError, or AdapterError naming each node and its fault.
        """

        async def body(node: str) -> bytes:
            request = Request(url=f"{node}{path}?{urlencode(parameters)}", name=f"rabbitmq at {node}")
            return self._checked(node, await self._http.send(request), vhost)

        return await self._nodes.ask(body, RequestFailedError, _none_answered)

    def _checked(self, node: str, response: Response, vhost: str) -> bytes:
        """Returns the body of a good answer; raises RequestFailedError if another node may still answer."""
        status, name = response.status, f"rabbitmq at {node}"
        if status in (401, 403):
            raise AdapterError(self._refusal(name, response, vhost), lasting=True)
        # A 404 without RabbitMQ's form comes from a proxy or another server: the queue may well exist.
        problem = _problem(response.body) if status == 404 else None
        if problem is not None and problem.error == _HIDDEN:
            raise AdapterError(self._refusal(name, response, vhost), lasting=True)
        if problem is not None:
            raise NotFoundError(f"{name} has no such queue or vhost", "spec")
        if status != 200:
            kind = _RefusedByNodeError if status in _REFUSALS else RequestFailedError
            reason = _reason(response)
            if not reason and status in _ODD_PATHS:
                reason = f': the url must end before "/api", without a vhost; {KEEPS_SLASHES}'
            raise kind(f"{name} answered {status} {response.reason}".rstrip() + reason)
        if not response.body.strip():
            raise RequestFailedError(f"{name} gave an empty answer")
        if response.content_type != _JSON:
            raise RequestFailedError(
                f"{name} answered {response.content_type}, not JSON: is this the management API's address?"
            )
        return response.body

    def _refusal(self, name: str, response: Response, vhost: str) -> str:
        user, status, detail = self._settings.username, response.status, _reason(response)
        where = "each vhost" if vhost == ANY_VHOST else f'vhost "{vhost}"'
        if self._settings.oauth2 is not None or self._settings.token:
            return (
                f"{name} refused the token ({status}{detail}): it needs the scope of the tag "
                f'"monitoring" and one for {where}'
            )
        if not user:
            return f"{name} answered {status}: it requires a user; configure username and password_file"
        refused = f'{name} refused user "{user}" ({status}{detail})'
        if any(reason in detail for reason in _WRONG_LOGIN):
            return f"{refused}: wrong user name or password"
        return (
            f'{refused}: it needs the tag "monitoring" and a permission on {where}, for which "^$" "^$" "^$" suffices'
        )


def _reason(response: Response) -> str:
    """Returns RabbitMQ's reason as ": text"; of a body of another form, such as a proxy's, the first line."""
    problem = _problem(response.body)
    return first_line(response.body) if problem is None else f": {(problem.reason or problem.error)[:_MAX_REASON]}"


def _problem(body: bytes) -> _Problem | None:
    try:
        return _PROBLEM.decode(body)
    except UNDECODABLE:
        return None


async def login(settings: Settings, http: Http) -> tuple[str, str]:
    """Returns user and password for protocols without headers; raises AdapterError."""
    if token := await http.bearer():
        return _USER_OF_A_TOKEN, token
    return settings.username, (await read_secrets({"password": settings.secret}))["password"]
