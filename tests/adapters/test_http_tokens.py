"""OAuth2 tokens of the HTTP client; test_rabbitmq_oauth.py has further cases, through an adapter."""

import msgspec
import pytest
from aiohttp import web
from support.http_stub import SECRET, SERVER, SetClock, get

from hpad.adapter import AdapterError, Context
from hpad.adapter_http import Http, HttpOptions, OAuth2, Request


@pytest.mark.parametrize(("life", "last_use"), [(100, 89.9), (3600, 3569.9)])
async def test_a_token_is_kept_until_shortly_before_it_expires(stub, context, life, last_use) -> None:
    """It is replaced a tenth of its life before the end, at most 30 seconds before."""
    clock = SetClock()
    granted = 0

    async def handler(request: web.BaseRequest) -> web.Response:
        nonlocal granted
        if request.path != "/token":
            return web.Response(text=request.headers["Authorization"])
        granted += 1
        return web.json_response({"access_token": f"t{granted}", "expires_in": life})

    stub.handler = handler
    oauth2 = OAuth2(token_url=f"{stub.url}/token", client_id="hpad", client_secret=SECRET)
    http = Http(msgspec.structs.replace(context, clock=clock), HttpOptions(oauth2=oauth2))
    for clock.seconds, expected in ((0.0, "t1"), (last_use, "t1"), (last_use + 0.2, "t2")):
        assert (await http.send(Request(url=stub.url, name=SERVER))).body.decode() == f"Bearer {expected}"


async def test_a_token_request_is_never_redirected(stub, context: Context) -> None:
    stub.answers(status=307, Location="/token2")
    oauth2 = OAuth2(token_url=f"{stub.url}/token", client_id="hpad", client_secret=SECRET)
    with pytest.raises(AdapterError, match="answered 307, a redirect to /token2") as caught:
        await get(context, stub.url, oauth2=oauth2)
    assert SECRET not in caught.value.message
    assert [each.path for each in stub.requests] == ["/token"]
