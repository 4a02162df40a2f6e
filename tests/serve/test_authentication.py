"""Who may look: tokens of a file, users of the cluster, and what those hear that may not."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support import http_server

from hpad.clock import Clock, SystemClock
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.client import Client
from hpad.serve import authentication
from hpad.serve.server import ServeError
from hpad.settings.model import Serving

SECRET = "one-token"
OTHER = "another-token"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text(f"{SECRET}\n")
    return file


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def test_without_a_guard_everybody_may_look() -> None:
    async with http_server.opened(Serving()) as server:
        assert (await http_server.get(server.url + "/"))[0] == 200


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/hpas", "/api/hpas/a/b", "/api/sources", "/nowhere"])
@pytest.mark.parametrize("token", [None, "", "wrong", SECRET[:-1], SECRET + "x", "x" * 9000])
async def test_only_the_tokens_of_the_file_let_in(token_file: Path, path: str, token: str | None) -> None:
    async with http_server.opened(Serving(token_file=token_file)) as server:
        status, text = await http_server.get(server.url + path, token=token)
        assert status in (400, 401)
        assert len(text) < 200
        assert SECRET not in text


async def test_a_token_of_the_file_lets_in_until_the_file_changes(token_file: Path) -> None:
    async with http_server.opened(Serving(token_file=token_file)) as server:
        assert (await http_server.get(server.url + "/", token=SECRET))[0] == 200
        write(token_file, f"{SECRET}\n{OTHER}\n")
        await server.refresh()
        assert (await http_server.get(server.url + "/", token=SECRET))[0] == 200
        assert (await http_server.get(server.url + "/", token=OTHER))[0] == 200
        write(token_file, OTHER)
        await server.refresh()
        assert (await http_server.get(server.url + "/", token=SECRET))[0] == 401
        write(token_file, "\n")
        await server.refresh()
        assert (await http_server.get(server.url + "/", token=""))[0] == 401
        assert (await http_server.get(server.url + "/", token=OTHER))[0] == 200


async def test_probes_are_open_but_tell_strangers_nothing(token_file: Path) -> None:
    reasons = ["the server https://10.0.0.1 does not answer"]
    async with http_server.opened(Serving(token_file=token_file), unready=lambda: reasons) as server:
        assert await http_server.get(server.url + "/livez") == (200, "ok\n")
        assert await http_server.get(server.url + "/readyz") == (503, "not ready\n")


@pytest.mark.parametrize("text", ["", "\n\n", "token\n" * 65])
async def test_a_file_without_a_sensible_number_of_tokens_is_refused(token_file: Path, text: str) -> None:
    write(token_file, text)
    with pytest.raises(ServeError, match=r"^listen_token_file: .* tokens"):
        async with http_server.opened(Serving(token_file=token_file)):
            pass


class Virtual:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        await SystemClock().sleep(seconds)


class Authority:
    """An API server that knows one user, `scraper`, and lets her get some paths."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.paths = {"/metrics"}
        self.broken = False

    async def answer(self, request: web.Request) -> web.Response:
        if self.broken:
            return web.json_response({"kind": "Status", "message": "etcd is at 10.0.0.9", "code": 500}, status=500)
        body = await request.json()
        self.asked[body["kind"]] += 1
        status = self.token(body["spec"]) if body["kind"] == "TokenReview" else self.access(body["spec"])
        return web.json_response({**body, "status": status}, status=201)

    def token(self, spec: dict[str, Any]) -> dict[str, Any]:
        if spec["token"] != SECRET:
            return {"authenticated": False, "error": "unknown"}
        user = {"username": "scraper", "uid": "7", "groups": ["scrapers"], "extra": {"scope": ["all"]}}
        return {"authenticated": True, "user": user}

    def access(self, spec: dict[str, Any]) -> dict[str, Any]:
        assert (spec["user"], spec["uid"], spec["groups"]) == ("scraper", "7", ["scrapers"])
        assert spec["extra"] == {"scope": ["all"]}
        wanted = spec["nonResourceAttributes"]
        return {"allowed": wanted["verb"] == "get" and wanted["path"] in self.paths}


@asynccontextmanager
async def reviewed(authority: Authority, clock: Clock) -> AsyncIterator[authentication.Reviewer]:
    application = web.Application()
    application.router.add_post("/{path:.*}", authority.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    try:
        async with Client(ClusterConfig(server=f"http://{host}:{port}"), clock) as client:
            yield authentication.Reviewer(client, clock)
    finally:
        await runner.cleanup()


async def test_the_cluster_says_who_may_look_and_is_asked_once_a_minute() -> None:
    authority, clock = Authority(), Virtual()
    async with (
        reviewed(authority, clock) as reviewer,
        http_server.opened(Serving(review=True), reviewer=reviewer) as server,
    ):
        for _ in range(3):
            assert (await http_server.get(server.url + "/metrics", token=SECRET))[0] == 200
            assert await http_server.get(server.url + "/", token=SECRET) == (403, "403: Forbidden")
            assert await http_server.get(server.url + "/metrics", token=OTHER) == (401, "401: Unauthorized")
            assert (await http_server.get(server.url + "/metrics"))[0] == 401
        assert authority.asked == {"TokenReview": 3, "SubjectAccessReview": 2}
        authority.paths.clear()
        clock.at = 59.0
        assert (await http_server.get(server.url + "/metrics", token=SECRET))[0] == 200
        clock.at = 61.0
        assert (await http_server.get(server.url + "/metrics", token=SECRET))[0] == 403


async def test_when_the_cluster_cannot_tell_nobody_gets_in_and_nothing_out() -> None:
    authority = Authority()
    authority.broken = True
    async with (
        reviewed(authority, SystemClock()) as reviewer,
        http_server.opened(Serving(review=True), reviewer=reviewer) as server,
    ):
        assert await http_server.get(server.url + "/metrics", token=SECRET) == (503, "503: Service Unavailable")
        assert (await http_server.get(server.url + "/livez"))[0] == 200


async def test_verdicts_are_forgotten_before_they_are_too_many() -> None:
    authority, clock = Authority(), Virtual()
    async with reviewed(authority, clock) as reviewer:
        for number in range(authentication._MAX_VERDICTS + 50):
            reviewer._remember((b"digest", str(number)), authentication.Verdict.UNKNOWN)
        assert len(reviewer._verdicts) == authentication._MAX_VERDICTS
