"""What HTTP adapters share, against real servers on loopback: secrets, TLS, limits, redirects, proxies and tokens."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trustme
from aiohttp import web

from hpad import testing
from hpad.adapter import AdapterError, Context
from hpad.adapter_http import (
    Http,
    HttpOptions,
    OAuth2,
    RequestFailedError,
    SecretRef,
    Tls,
    TlsOptions,
    TooLargeError,
    decoded,
    read_secrets,
    url_flaw,
)
from hpad.lab.servers import ports

SECRET = "s3cr3t"
SERVER = "the server"


@pytest.fixture
async def context() -> AsyncIterator[Context]:
    async with testing.context("http") as made:
        yield made


async def get(context: Context, url: str, **options: object) -> str:
    return (await Http(context, HttpOptions(**options)).fetch(url, name=SERVER)).body.decode()


async def refusal(context: Context, url: str, **options: object) -> str:
    with pytest.raises(RequestFailedError) as caught:
        await get(context, url, **options)
    assert SECRET not in caught.value.message
    return caught.value.message


class TestSecrets:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (b"word", "word"),
            (b"word\n", "word"),
            (b"word\r\n", "word"),
            (b"word\n\n", "word\n"),
            (b"word\r\n\r\n", "word\r\n"),
            (b"word\r", "word\r"),
            (b"\n word \t\n", "\n word \t"),
        ],
    )
    async def test_one_trailing_line_end_is_removed(self, tmp_path: Path, monkeypatch, content, expected) -> None:
        (tmp_path / "secret").write_bytes(content)
        monkeypatch.setenv("SECRET_HERE", content.decode())
        found = await read_secrets(
            {"file": SecretRef(file=str(tmp_path / "secret")), "env": SecretRef(env="SECRET_HERE"), "text": "word\n"}
        )
        assert found == {"file": expected, "env": expected, "text": "word\n"}

    async def test_rotated_files_and_variables_are_read_again(self, stub, context, tmp_path, monkeypatch) -> None:
        stub.answers("{}")
        options = HttpOptions(
            headers={"X-Key": SecretRef(env="KEY_HERE")}, bearer_token=SecretRef(file=str(tmp_path / "t"))
        )
        http = Http(context, options)
        for word in ("one", "two"):
            (tmp_path / "t").write_text(f"{word}\n")
            monkeypatch.setenv("KEY_HERE", f"key {word}")
            await http.fetch(stub.url, name=SERVER)
        sent = [(each.headers["Authorization"], each.headers["X-Key"]) for each in stub.requests]
        assert sent == [("Bearer one", "key one"), ("Bearer two", "key two")]

    @pytest.mark.parametrize(
        ("content", "complaint"),
        [
            (None, "cannot be read: No such file or directory"),
            (b"\n", "is empty"),
            (b"\xff", "cannot be read: it is not UTF-8 text"),
        ],
    )
    async def test_an_unusable_file_is_named(self, tmp_path: Path, content, complaint) -> None:
        file = tmp_path / "secret"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(AdapterError) as caught:
            await read_secrets({"password": SecretRef(file=str(file))})
        assert caught.value.message == f"password: {file} {complaint}"

    async def test_a_variable_that_is_not_set_is_named(self) -> None:
        with pytest.raises(AdapterError, match="password: the environment variable UNSET_HERE is not set"):
            await read_secrets({"password": SecretRef(env="UNSET_HERE")})

    @pytest.mark.parametrize("options", [{"headers": {"X": f"{SECRET}\r\nY: z"}}, {"bearer_token": f"{SECRET}\n"}])
    async def test_a_line_break_never_reaches_a_header(self, stub, context, options) -> None:
        stub.answers("{}")
        with pytest.raises(AdapterError, match="contains a line break") as caught:
            await get(context, stub.url, **options)
        assert SECRET not in caught.value.message
        assert stub.requests == []


@asynccontextmanager
async def serving(authority: trustme.CA, clients: trustme.CA | None = None, port: int = 0) -> AsyncIterator[str]:
    """An HTTPS server that answers with the common name of the client's certificate; gives its address."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "named.example.com").configure_cert(tls)
    if clients is not None:
        clients.configure_trust(tls)
        tls.verify_mode = ssl.CERT_REQUIRED

    async def answer(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert") or {}
        return web.Response(text=str(dict(field[0] for field in peer.get("subject", ())).get("commonName", "")))

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class TestTls:
    async def test_a_renewed_authority_is_trusted_without_a_restart(self, context: Context, tmp_path: Path) -> None:
        old, new = trustme.CA(), trustme.CA()
        old.cert_pem.write_to_path(tmp_path / "ca")
        http = Http(context, HttpOptions(tls=TlsOptions(ca=str(tmp_path / "ca"))))
        async with serving(new) as url:
            with pytest.raises(RequestFailedError, match=r"certificate that is not trusted \(.*\): configure ca"):
                await http.fetch(url, name=SERVER)
            new.cert_pem.write_to_path(tmp_path / "ca")
            assert (await http.fetch(url, name=SERVER)).status == 200

    async def test_a_renewed_client_certificate_is_shown_without_a_restart(self, context, tmp_path) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "ca")
        http = Http(context, HttpOptions(tls=TlsOptions(ca=str(tmp_path / "ca"), cert=str(tmp_path / "client"))))
        async with serving(authority, authority) as url:
            for name in ("first", "second"):
                issued = authority.issue_cert(f"{name}@example.com", common_name=name)
                issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "new")
                (tmp_path / "new").replace(tmp_path / "client")
                assert (await http.fetch(url, name=SERVER)).body.decode() == name

    async def test_a_required_client_certificate_is_asked_for(self, context: Context, tmp_path: Path) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "ca")
        async with serving(authority, authority) as url:
            text = await refusal(context, url, tls=TlsOptions(ca=str(tmp_path / "ca")))
        assert "client certificate" in text or "closed the connection" in text  # the reset may outrun the reason

    async def test_server_name_and_insecure(self, context: Context, tmp_path: Path) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "ca")
        ca = str(tmp_path / "ca")
        async with serving(authority) as url:
            assert await get(context, url, tls=TlsOptions(ca=ca, server_name="named.example.com")) == ""
            assert await get(context, url, tls=TlsOptions(insecure=True)) == ""
            assert "not trusted" in await refusal(context, url, tls=TlsOptions(ca=ca, server_name="other.example.com"))

    async def test_files_that_cannot_be_used_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "ca").write_text("no PEM")
        for name, complaint in (("gone", "No such file or directory"), ("ca", "cannot be used: ")):
            with pytest.raises(AdapterError, match=complaint) as caught:
                await Tls(TlsOptions(ca=str(tmp_path / name))).context()
            assert str(tmp_path / name) in caught.value.message

    async def test_an_unchanged_file_is_loaded_once(self, tmp_path: Path) -> None:
        trustme.CA().cert_pem.write_to_path(tmp_path / "ca")
        tls = Tls(TlsOptions(ca=str(tmp_path / "ca")))
        assert await tls.context() is await tls.context()


class TestLimits:
    async def test_a_body_without_end_is_cut_off(self, stub, context: Context) -> None:
        sent = 0

        async def endless(request: web.Request) -> web.StreamResponse:
            nonlocal sent
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b"x" * 65536)
                sent += 65536

        stub.handler = endless
        with pytest.raises(TooLargeError) as caught:
            await get(context, stub.url, max_bytes=1 << 16)
        assert caught.value.message == "the server answers more than max_bytes (65536)"
        assert (caught.value.alive, caught.value.lasting) == (True, True)
        assert sent < 64 << 20

    async def test_a_body_of_exactly_the_limit_is_taken(self, stub, context: Context) -> None:
        stub.answers("x" * 1000)
        assert len(await get(context, stub.url, max_bytes=1000)) == 1000
        await refusal(context, stub.url, max_bytes=999)

    @pytest.mark.parametrize(
        ("body", "complaint"),
        [
            (b"[1,2,3]", "answers more than max_elements (3)"),
            (b"[" * 200_000, "something other than a list"),
            (b"<html>", "something other than a list"),
            (b'"\xff"', "something other than a list"),
        ],
    )
    def test_json_is_bounded_in_elements_and_depth(self, body: bytes, complaint: str) -> None:
        limit = 3 if b"3" in body else None
        with pytest.raises(AdapterError) as caught:
            decoded(msgspec.json.Decoder(), body, SERVER, "a list", max_elements=limit)
        assert complaint in caught.value.message

    async def test_a_server_that_does_not_answer_is_given_up(self, stub, context: Context) -> None:
        async def hang(request: web.Request) -> web.Response:
            await asyncio.Event().wait()
            raise AssertionError

        stub.handler = hang
        assert await refusal(context, stub.url, timeout=0.2) == "the server did not answer within 0.2s"


class TestRedirects:
    async def test_another_host_gets_nothing(self, stub, context: Context) -> None:
        other = []

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            other.append(await reader.read(100))

        async with await asyncio.start_server(listen, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            for target in (f"http://127.0.0.1:{port}/", f"//localhost:{port}/", f"https://127.0.0.1:{port}/{SECRET}"):
                stub.answers(status=302, Location=target)
                assert "redirects to another host (" in await refusal(context, stub.url, bearer_token=SECRET)
        assert other == []

    async def test_the_same_host_is_followed_with_the_credentials(self, stub, context: Context) -> None:
        async def moved(request: web.Request) -> web.Response:
            if request.path == "/old":
                return web.Response(status=301, headers={"Location": "/new?x=1"})
            return web.Response(text=request.path_qs)

        stub.handler = moved
        assert await get(context, f"{stub.url}/old", bearer_token=SECRET) == "/new?x=1"
        assert [each.headers["Authorization"] for each in stub.requests] == [f"Bearer {SECRET}"] * 2

    async def test_redirects_in_a_circle_have_an_end(self, stub, context: Context) -> None:
        stub.answers(status=307, Location="/")
        assert "redirects more than 3 times" in await refusal(context, stub.url)
        assert len(stub.requests) == 4

    @pytest.mark.parametrize(("status", "complaint"), [(302, "answers a POST with the redirect 302"), (307, "")])
    async def test_a_post_keeps_its_form_or_is_refused(self, stub, context: Context, status, complaint) -> None:
        forms = []

        async def moved(request: web.Request) -> web.Response:
            forms.append(await request.read())
            again = request.path == "/old"
            return web.Response(status=status if again else 200, headers={"Location": "/new"} if again else {})

        stub.handler = moved
        http = Http(context, HttpOptions())
        if complaint:
            with pytest.raises(RequestFailedError, match=complaint):
                await http.fetch(f"{stub.url}/old", name=SERVER, method="POST", form={"query": "up"})
        else:
            await http.fetch(f"{stub.url}/old", name=SERVER, method="POST", form={"query": "up"})
            assert forms == [b"query=up"] * 2


@asynccontextmanager
async def tunnel(targets: list[str], status: str = "200 Connected") -> AsyncIterator[str]:
    """A proxy that speaks CONNECT; `targets` gets the hosts that it was asked for."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(65536):
            writer.write(part)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        targets.append(target)
        writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
        if not status.startswith("200"):
            writer.close()
            return
        host, _, port = target.partition(":")
        there = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


class TestProxies:
    async def test_a_plain_request_goes_to_the_proxy(self, stub, context: Context) -> None:
        stub.answers("through the proxy")
        assert await get(context, "http://metrics.invalid/depth", proxy=stub.url) == "through the proxy"
        assert [each.headers["Host"] for each in stub.requests] == ["metrics.invalid"]

    async def test_tls_goes_through_the_proxy_to_the_server(self, context: Context, tmp_path: Path) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "ca")
        targets: list[str] = []
        async with serving(authority) as url, tunnel(targets) as proxy:
            assert await get(context, url, proxy=proxy, tls=TlsOptions(ca=str(tmp_path / "ca"))) == ""
        assert targets == [url.removeprefix("https://")]

    async def test_the_faults_of_a_proxy_are_told_apart(self, context: Context) -> None:
        async with tunnel([], "407 Proxy Authentication Required") as proxy:
            assert "the proxy refuses the connection" in await refusal(context, "https://127.0.0.1:1/", proxy=proxy)
        dead = f"http://127.0.0.1:{ports.free(1)[0]}"
        assert "no connection to the proxy" in await refusal(context, "http://metrics.invalid/", proxy=dead)


class Clock:
    """A clock that tests set."""

    def __init__(self, context: Context) -> None:
        self.seconds = 0.0
        self.now = context.clock.now
        self.sleep = context.clock.sleep

    def monotonic(self) -> float:
        return self.seconds


class TestTokens:
    """Further cases, through an adapter: test_rabbitmq_oauth.py."""

    @pytest.mark.parametrize(("life", "last_use"), [(100, 89.9), (3600, 3569.9)])
    async def test_a_token_is_kept_until_shortly_before_it_expires(self, stub, context, life, last_use) -> None:
        """The last tenth of its life is spared, 30 seconds at most."""
        clock = Clock(context)
        granted = 0

        async def handler(request: web.Request) -> web.Response:
            nonlocal granted
            if request.path != "/token":
                return web.Response(text=request.headers["Authorization"])
            granted += 1
            return web.json_response({"access_token": f"t{granted}", "expires_in": life})

        stub.handler = handler
        oauth2 = OAuth2(token_url=f"{stub.url}/token", client_id="hpad", client_secret=SECRET)
        http = Http(msgspec.structs.replace(context, clock=clock), HttpOptions(oauth2=oauth2))
        for clock.seconds, expected in ((0.0, "t1"), (last_use, "t1"), (last_use + 0.2, "t2")):
            assert (await http.fetch(stub.url, name=SERVER)).body.decode() == f"Bearer {expected}"

    async def test_a_token_request_is_never_redirected(self, stub, context: Context) -> None:
        stub.answers(status=307, Location="/token2")
        oauth2 = OAuth2(token_url=f"{stub.url}/token", client_id="hpad", client_secret=SECRET)
        with pytest.raises(AdapterError, match="answered 307: check client_id") as caught:
            await get(context, stub.url, oauth2=oauth2)
        assert SECRET not in caught.value.message
        assert [each.path for each in stub.requests] == ["/token"]


class TestSentences:
    async def test_each_failure_has_its_own(self, stub, context: Context) -> None:
        async def hang_up(request: web.Request) -> web.Response:
            assert request.transport is not None
            request.transport.close()
            return web.Response()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail ready\r\n")
            await reader.read(100)
            writer.close()

        stub.handler = hang_up
        assert await refusal(context, f"http://127.0.0.1:{ports.free(1)[0]}") == "the server refused the connection"
        assert "host name does not resolve" in await refusal(context, "http://metrics.invalid/")
        assert "does not speak TLS" in await refusal(context, stub.url.replace("http:", "https:"))
        assert await refusal(context, stub.url) == "the server closed the connection without an answer"
        async with await asyncio.start_server(talk, "127.0.0.1", 0) as listener:
            url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
            assert "did not answer in HTTP" in await refusal(context, url)

    @pytest.mark.parametrize(
        ("url", "flaw"),
        [
            ("http://h:80/x", ""),
            (f"http://me:{SECRET}@h", "contains credentials: write them as settings of their own"),
            (f"http://me:{SECRET}@h:port", "is not a URL, or its port is not a number"),
            ("h:80", "'h:80' is not of the form \"http://h\""),
            ("http://h:0", "'http://h:0' is not of the form \"http://h\""),
        ],
    )
    def test_a_url_that_is_none_is_refused_without_its_password(self, url: str, flaw: str) -> None:
        assert url_flaw(url, ("http", "https"), "http://h") == flaw
