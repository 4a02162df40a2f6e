"""Authentication by tokens of a file and by the cluster, and the responses to refused clients."""

import os
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


async def test_without_authentication_every_request_is_answered() -> None:
    async with http_server.opened(Serving()) as server:
        assert (await http_server.get(server.url + "/"))[0] == 200


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/hpas", "/api/v1/hpas/a/b", "/api/v1/sources", "/nowhere"])
@pytest.mark.parametrize("token", [None, "", "wrong", SECRET[:-1], SECRET + "x", "x" * 9000])
async def test_only_tokens_of_the_file_are_accepted(token_file: Path, path: str, token: str | None) -> None:
    async with http_server.opened(Serving(token_file=token_file)) as server:
        status, text = await http_server.get(server.url + path, token=token)
        assert status in (400, 401)
        assert len(text) < 200
        assert SECRET not in text


async def test_a_token_is_accepted_until_it_is_removed_from_the_file(token_file: Path) -> None:
    async with http_server.opened(Serving(token_file=token_file)) as server:
        assert (await http_server.get(server.url + "/", token=SECRET))[0] == 200
        write(token_file, f"{SECRET}\n{OTHER}\n")
        await server.refresh()
        assert (await http_server.get(server.url + "/", token=SECRET))[0] == 200
        assert (await http_server.get(server.url + "/", token=OTHER))[0] == 200
        write(token_file, OTHER)
        await server.refresh()
        assert (await http_server.get(server.url + "/", token=SECRET))[0] == 401
        token_file.unlink()  # noqa: ASYNC240
        os.mkfifo(token_file)  # reading it would wait for its writer
        await server.refresh()
        assert (await http_server.get(server.url + "/", token=OTHER))[0] == 200
        token_file.unlink()  # noqa: ASYNC240
        write(token_file, "\n")
        await server.refresh()
        assert (await http_server.get(server.url + "/", token=""))[0] == 401
        assert (await http_server.get(server.url + "/", token=OTHER))[0] == 200


async def test_probes_need_no_token_and_give_no_reasons(token_file: Path) -> None:
    reasons = ["the server https://10.0.0.1 does not answer"]
    async with http_server.opened(Serving(token_file=token_file), unready=lambda: reasons) as server:
        assert await http_server.get(server.url + "/livez") == (200, "ok\n")
        assert await http_server.get(server.url + "/readyz") == (503, "not ready\n")


@pytest.mark.parametrize("text", ["", "\n\n", "token\n" * 65])
async def test_a_file_with_no_tokens_or_too_many_is_refused(token_file: Path, text: str) -> None:
    write(token_file, text)
    with pytest.raises(ServeError, match=r"^listen_token_file: .* tokens"):
        async with http_server.opened(Serving(token_file=token_file)):
            pass


class ManualClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        await SystemClock().sleep(seconds)


class ApiServer:
    """An API server that knows one user, `scraper`, who may get some paths."""

    def __init__(self) -> None:
        self.reviews: Counter[str] = Counter()
        self.paths = {"/metrics"}
        self.broken = False

    async def review(self, request: web.Request) -> web.Response:
        if self.broken:
            return web.json_response({"kind": "Status", "message": "etcd is at 10.0.0.9", "code": 500}, status=500)
        body = await request.json()
        self.reviews[body["kind"]] += 1
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
        attributes = spec["nonResourceAttributes"]
        return {"allowed": attributes["verb"] == "get" and attributes["path"] in self.paths}


@asynccontextmanager
async def reviewed(api_server: ApiServer, clock: Clock) -> AsyncIterator[authentication.Reviewer]:
    application = web.Application()
    application.router.add_post("/{path:.*}", api_server.review)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    try:
        async with Client(ClusterConfig(server=f"http://{host}:{port}"), clock) as client:
            yield authentication.Reviewer(client, clock)
    finally:
        await runner.cleanup()


async def test_the_cluster_reviews_a_token_once_a_minute() -> None:
    api_server, clock = ApiServer(), ManualClock()
    async with (
        reviewed(api_server, clock) as reviewer,
        http_server.opened(Serving(review=True), reviewer=reviewer) as server,
    ):
        for _ in range(3):
            assert (await http_server.get(server.url + "/metrics", token=SECRET))[0] == 200
            assert await http_server.get(server.url + "/", token=SECRET) == (403, "403: Forbidden")
            assert await http_server.get(server.url + "/metrics", token=OTHER) == (401, "401: Unauthorized")
            assert (await http_server.get(server.url + "/metrics"))[0] == 401
        assert api_server.reviews == {"TokenReview": 3, "SubjectAccessReview": 2}
        api_server.paths.clear()
        clock.at = 59.0
        assert (await http_server.get(server.url + "/metrics", token=SECRET))[0] == 200
        clock.at = 61.0
        assert (await http_server.get(server.url + "/metrics", token=SECRET))[0] == 403


@pytest.mark.parametrize(("granted", "status"), [("/", 200), ("/api/v1/hpas", 403)])
async def test_the_json_api_is_reviewed_as_the_page(granted: str, status: int) -> None:
    """The ClusterRole system:discovery lets every user get /api/*."""
    api_server = ApiServer()
    api_server.paths = {granted}
    async with (
        reviewed(api_server, SystemClock()) as reviewer,
        http_server.opened(Serving(review=True), reviewer=reviewer) as server,
    ):
        assert (await http_server.get(server.url + "/api/v1/hpas", token=SECRET))[0] == status


async def test_a_failed_review_is_a_503_without_details() -> None:
    api_server = ApiServer()
    api_server.broken = True
    async with (
        reviewed(api_server, SystemClock()) as reviewer,
        http_server.opened(Serving(review=True), reviewer=reviewer) as server,
    ):
        assert await http_server.get(server.url + "/metrics", token=SECRET) == (503, "503: Service Unavailable")
        assert (await http_server.get(server.url + "/livez"))[0] == 200


async def test_the_number_of_cached_verdicts_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest verdict is dropped first."""
    monkeypatch.setattr(authentication, "_MAX_VERDICTS", 3)
    api_server = ApiServer()
    async with reviewed(api_server, ManualClock()) as reviewer:
        for path in ("/0", "/1", "/2", "/3", "/1", "/2", "/3"):
            await reviewer.review(OTHER, path)
        assert api_server.reviews["TokenReview"] == 4
        await reviewer.review(OTHER, "/0")
        assert api_server.reviews["TokenReview"] == 5
