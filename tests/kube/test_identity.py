"""Credentials are read again after a minute, before they expire, and after a refusal."""

import asyncio
import threading
from datetime import timedelta

import pytest
import structlog
from support.scripted_server import failure, refused, says

from hpad.kube.auth.credentials import ClusterConfig, ConfigError, Credentials, Identity
from hpad.kube.client import Client

PATH = "/api/v1/namespaces/n/pods/a"


def needs(token):
    async def answer(request):
        good = request.headers.get("Authorization") == f"Bearer {token}"
        return await (says(b"in") if good else says(failure(401, "Unauthorized", "Unauthorized"), 401))(request)

    return answer


async def test_a_refused_token_is_read_again_once(script, clock):
    script.on("PUT", PATH, needs("new"))
    identity = Identity(Credentials("Bearer old"), lambda: Credentials("Bearer new"))
    async with Client(ClusterConfig(script.url, identity=identity), clock) as client:
        answers = await asyncio.gather(*(client.request("PUT", PATH, body=b"{}") for _ in range(4)))
        assert answers == [b"in"] * 4


async def test_a_token_that_stays_invalid_is_read_once(script, clock):
    script.on("GET", PATH, needs("never"))
    reads = []
    identity = Identity(Credentials("Bearer old"), lambda: reads.append(1) or Credentials("Bearer s3cret"))
    async with Client(ClusterConfig(script.url, identity=identity), clock) as client:
        for _ in range(5):
            error = await refused(client.request("GET", PATH))
    assert len(reads) == 1
    assert "s3cret" not in repr(error) + repr(client.config)


async def test_the_token_stays_in_use_if_a_reading_fails(script, clock):
    script.on("GET", PATH, needs("old"))

    def fails():
        raise ConfigError("the plugin is gone")

    identity = Identity(Credentials("Bearer old"), fails, every=60)
    async with Client(ClusterConfig(script.url, identity=identity), clock) as client:
        for _ in range(3):
            assert await client.request("GET", PATH) == b"in"
            clock.skipped += 61


async def test_a_reading_continues_if_its_caller_is_cancelled(clock):
    """A Lease must be renewed in time, and some identity providers accept a refresh token only once."""
    starts, go_on = [], threading.Event()

    def read():
        starts.append(1)
        go_on.wait(60)
        return Credentials("new")

    identity = Identity(Credentials("old", clock.now()), read)
    await identity.headers(clock)
    for _ in range(3):
        clock.skipped += 11
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(identity.headers(clock), 0.01)
    waiting = asyncio.create_task(identity.headers(clock))
    go_on.set()
    assert await asyncio.wait_for(waiting, 60) == {"Authorization": "new"}
    assert starts == [1]


async def test_a_request_does_not_wait_long_for_a_reading_while_the_token_is_valid(clock):
    go_on = threading.Event()
    valid = Credentials("old", clock.now() + timedelta(seconds=120))
    identity = Identity(valid, lambda: go_on.wait(60) and Credentials("new"), patience=0.01)
    assert await identity.headers(clock) == {"Authorization": "old"}
    clock.skipped += 70
    assert await asyncio.wait_for(identity.headers(clock), 60) == {"Authorization": "old"}
    go_on.set()
    async with asyncio.timeout(60):
        while await identity.headers(clock) != {"Authorization": "new"}:  # noqa: ASYNC110  # a thread brings it
            await asyncio.sleep(0.002)


async def test_an_unexpected_error_of_a_reading_is_logged_without_its_text(clock):
    def fails():
        raise KeyError("s3cret")

    identity = Identity(Credentials("old"), fails, every=60, patience=60)
    await identity.headers(clock)
    clock.skipped += 61
    with structlog.testing.capture_logs() as logged:
        assert await identity.headers(clock) == {"Authorization": "old"}
    assert [each["error"] for each in logged] == ["bug: KeyError"]
    assert "s3cret" not in repr(logged)


async def test_tokens_in_files_are_read_every_minute_and_expiring_tokens_a_minute_before(clock):
    tokens = iter(["b", "c", "d"])
    identity = Identity(Credentials("a"), lambda: Credentials(next(tokens)), every=60, patience=60)
    seen = []
    for wait in (0, 30, 31, 5, 56):
        clock.skipped += wait
        seen.append((await identity.headers(clock))["Authorization"])
    assert seen == ["a", "a", "b", "b", "c"]
    expires = clock.now() + timedelta(minutes=5)
    expiring = Identity(Credentials("a", expires), lambda: Credentials("b"), patience=60)
    assert (await expiring.headers(clock))["Authorization"] == "a"
    clock.skipped += 235  # less than 240 by some seconds, because real time passes as well
    assert (await expiring.headers(clock))["Authorization"] == "a"
    clock.skipped += 6
    assert (await expiring.headers(clock))["Authorization"] == "b"
