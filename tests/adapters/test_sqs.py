"""Queues of a real server with the API of SQS (moto), and answers that a test sets."""

import asyncio
import contextlib
import datetime
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import trustme
from aiohttp import web
from support import http_stub

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample, Operator, Query, Requirement, Selector
from hpad.lab.servers import ports
from hpad_adapters.sqs import Sqs
from hpad_adapters.sqs.settings import SqsSettings

pytest.importorskip("aiobotocore", reason="needs the extra sqs")

ACCOUNT = "123456789012"
SECRET = "s3cr3tK3y"
KEYS = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": SECRET}
JOBS = testing.external("sqs_messages", "queue=jobs")
ROLE = f"arn:aws:iam::{ACCOUNT}:role/hpad"


class Moto:
    """A moto server: queue "jobs" has 7 visible messages, 3 in flight and 2 delayed."""

    def __init__(self, log: Path) -> None:
        (self.port,) = ports.free(1)
        self.url = f"http://127.0.0.1:{self.port}"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
            self._process = subprocess.Popen(command, stdout=output, stderr=output)

    async def fill(self) -> None:
        deadline = time.monotonic() + 120
        async with aiohttp.ClientSession() as http:
            while True:
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    await self._call(http, "CreateQueue", QueueName="jobs")
                    break
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            await self._call(http, "CreateQueue", QueueName="empty.fifo", Attributes={"FifoQueue": "true"})
            for number in range(12):
                await self._call(http, "SendMessage", DelaySeconds=900 if number < 2 else 0, MessageBody="x")
            await self._call(http, "ReceiveMessage", MaxNumberOfMessages=3, VisibilityTimeout=3600)

    async def _call(self, http: aiohttp.ClientSession, action: str, **fields: Any) -> None:
        headers = {
            "X-Amz-Target": f"AmazonSQS.{action}",
            "Content-Type": "application/x-amz-json-1.0",
            "Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/eu-central-1/sqs/aws4_request",
        }
        if "QueueName" not in fields:
            fields["QueueUrl"] = self.queue("jobs")
        async with http.post(self.url, data=msgspec.json.encode(fields), headers=headers) as response:
            assert response.status == 200, await response.text()

    def queue(self, name: str) -> str:
        return f"{self.url}/{ACCOUNT}/{name}"

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    pytest.importorskip("moto", reason="needs moto")
    made = Moto(tmp_path_factory.mktemp("moto") / "log")
    try:
        asyncio.run(made.fill())
        yield made
    finally:
        made.stop()


def settings(url: str, **options: Any) -> SqsSettings:
    common = {"region": "eu-central-1", "endpoint_url": url, "sts_endpoint_url": url if "role_arn" in options else ""}
    return msgspec.convert({**common, **({} if "profile" in options else KEYS), **options}, SqsSettings)


async def ask(url: str, *asked: Query, **options: Any) -> list[Answer]:
    """Returns the answers; an error of the whole batch is that of each query."""
    async with testing.context("sqs") as context:
        adapter = Sqs(settings(url, **options), context)
        try:
            return await adapter.answer(asked or (JOBS,))
        except AdapterError as error:
            return [error] * max(1, len(asked))
        finally:
            await adapter.aclose()


def values(answers: list[Answer]) -> list[Any]:
    return [answer.values[0] if isinstance(answer, ExternalSample) else answer for answer in answers]


def message(answer: Answer) -> str:
    assert isinstance(answer, AdapterError), answer
    assert SECRET not in answer.message
    return answer.message


async def test_counts_of_queues(moto: Moto) -> None:
    names = ("sqs_messages", "sqs_messages_visible", "sqs_messages_in_flight", "sqs_messages_delayed", "all", "fifo")
    metrics = {
        "all": {"queue": moto.queue("jobs"), "counts": ["visible", "in_flight", "delayed"]},
        "fifo": {"queue": "empty.fifo"},
    }
    asked = [testing.external(name, "queue=jobs" if name.startswith("sqs") else None) for name in names]
    answers = await ask(moto.url, *asked, metrics=metrics)
    assert values(answers) == [10_000, 7000, 3000, 2000, 12_000, 0]


async def test_queues_by_another_name(moto: Moto) -> None:
    asked = [testing.external("sqs_messages", f"queue={name}") for name in ("mine", "jobs")]
    mine, other = await ask(moto.url, *asked, queues={"mine": "jobs"}, only_queues=True)
    assert values([mine]) == [10_000]
    assert "not one of the queues that the configuration allows" in message(other)


async def test_a_selector_names_no_url(moto: Moto) -> None:
    """Kubernetes allows no slash in a label; the adapter does not rely on that."""
    url = Selector((Requirement("queue", Operator.EQUALS, (moto.queue("jobs"),)),))
    asked = msgspec.structs.replace(testing.external("sqs_messages"), selector=url)
    (refused,) = await ask(moto.url, asked)
    assert "which the configuration alone may name" in message(refused)


async def test_a_queue_that_does_not_exist(moto: Moto) -> None:
    gone = (testing.external("sqs_messages", "queue=gone"), testing.external("by_url"))
    answers = await ask(moto.url, *gone, metrics={"by_url": {"queue": moto.queue("gone")}})
    for answer in answers:
        assert "The specified queue does not exist" in message(answer)
        assert isinstance(answer, AdapterError)
        assert answer.blame == "spec"


async def test_the_adapter_keeps_the_contract(moto: Moto) -> None:
    queries = [
        JOBS,
        testing.external("sqs_messages", "queue=gone"),
        testing.external("sqs_messages"),
        testing.external("x"),
    ]
    before = threading.active_count()
    async with testing.context("sqs") as context:
        answers = await testing.check_adapter(Sqs(settings(moto.url), context), queries)
    assert [isinstance(answer, ExternalSample) for answer in answers] == [True, False, False, False]
    assert "needs a selector with queue=…" in message(answers[2])
    assert "there is no metric" in message(answers[3])
    assert threading.active_count() <= before + 1  # asyncio's own; the thread of the source has ended


def number(visible: str = "5") -> Mapping[str, object]:
    names = (
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    )
    return {"Attributes": dict.fromkeys(names, visible)}


BY_URL = {"metrics": {"mine": {"queue": f"https://sqs.example.com/{ACCOUNT}/jobs", "counts": ["visible"]}}}
MINE = testing.external("mine")


def role_keys(expiration: str) -> web.Response:
    fields = {"AccessKeyId": "ASIAROLE", "SecretAccessKey": "x", "SessionToken": "y", "Expiration": expiration}
    text = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
    result = f"<AssumeRoleResult><Credentials>{text}</Credentials></AssumeRoleResult>"
    return web.Response(text=f"<AssumeRoleResponse>{result}</AssumeRoleResponse>", content_type="text/xml")


async def test_keys_of_a_role_whose_end_is_none_stop_no_later_sign_in(stub: http_stub.Stub) -> None:
    ends = iter(["2026-01-01T00:00:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])

    async def handle(_: web.BaseRequest) -> web.StreamResponse:
        return role_keys(next(ends)) if stub.forms[-1].get("Action") == "AssumeRole" else web.json_response(number())

    stub.handler = handle
    async with testing.context("sqs") as context:
        adapter = Sqs(settings(stub.url, role_arn=ROLE, **BY_URL), context)
        with pytest.raises(AdapterError, match="the answer is not one of SQS"):
            await adapter.answer([MINE])
        for _ in range(3):
            assert values(await adapter.answer([MINE])) == [5000]
        await adapter.aclose()
    assert not list(ends)


async def test_the_keys_of_a_role_are_fetched_and_used(stub: http_stub.Stub, tmp_path: Path) -> None:
    used: list[str] = []
    expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        used.append(request.headers["Authorization"].partition("Credential=")[2].partition("/")[0])
        if stub.forms[-1].get("Action") != "AssumeRole":
            return web.json_response(number())
        return role_keys(expires.isoformat())

    stub.handler = handle
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    role = {"role_arn": ROLE, "external_id": "theirs"}
    keys = {"secret_access_key": "", "secret_access_key_file": str(tmp_path / "secret")}
    async with testing.context("sqs") as context:
        adapter = Sqs(settings(stub.url, **role, **keys, **BY_URL), context)
        for _ in range(2):
            assert values(await adapter.answer([MINE])) == [5000]
        expires -= datetime.timedelta(hours=2)
        await adapter.aclose()
        adapter = Sqs(settings(stub.url, **role, **keys, **BY_URL), context)
        for _ in range(2):  # keys that are about to expire are fetched again
            assert values(await adapter.answer([MINE])) == [5000]
        await adapter.aclose()
    (tmp_path / "secret").unlink()
    (absent,) = await ask(stub.url, MINE, **role, **keys, **BY_URL)
    assert used == ["AKIAEXAMPLE", "ASIAROLE", "ASIAROLE", *["AKIAEXAMPLE", "ASIAROLE"] * 2]
    first = stub.forms[0]
    assert (first["RoleArn"], first["ExternalId"], first["RoleSessionName"]) == (ROLE, "theirs", "hpad")
    assert "secret cannot be read" in message(absent)


async def test_credentials_of_a_profile(stub: http_stub.Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.answers(number())
    (tmp_path / "credentials").write_text(
        f"[theirs]\naws_access_key_id = AKIAPROFILE\naws_secret_access_key = {SECRET}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    assert values(await ask(stub.url, MINE, profile="theirs", **BY_URL)) == [5000]
    assert "Credential=AKIAPROFILE/" in stub.requests[0].headers["Authorization"]
    (absent,) = await ask(stub.url, MINE, profile="gone", **BY_URL)
    assert "gone" in message(absent)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert values(await ask(stub.url, MINE, access_key_id="", secret_access_key="", **BY_URL)) == [5000]
    assert "Credential=AKIAENV/" in stub.requests[-1].headers["Authorization"]


async def test_without_credentials_there_is_an_error(monkeypatch: pytest.MonkeyPatch, stub: http_stub.Stub) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    (answer,) = await ask(stub.url, access_key_id="", secret_access_key="")
    assert "there are no AWS credentials" in message(answer)
    (no_region,) = await ask(stub.url, region="")
    assert "region" in message(no_region)


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (
            {"__type": "com.amazonaws.sqs#InvalidClientTokenId", "message": "No such key"},
            403,
            "InvalidClientTokenId: No such",
        ),
        ({"__type": "com.amazonaws.sqs#AccessDenied", "message": "not yours"}, 403, "AccessDenied: not yours"),
        ({"__type": "com.amazonaws.sqs#RequestThrottled", "message": "slow down"}, 400, "RequestThrottled: slow down"),
        (b"", 503, "503"),
        (b"<html>", 200, "lacks counts of messages"),
        ({}, 200, "lacks counts of messages"),
        ({"Attributes": {}}, 200, "lacks counts of messages"),
        ({"Attributes": []}, 200, "SQS: queue"),
        (number("-1"), 200, "lacks counts of messages"),
        (number("9" * 20), 200, "lacks counts of messages"),
        (number("1.5"), 200, "lacks counts of messages"),
        (b"x" * (2 << 20), 200, "has more than 1 MiB"),
    ],
)
async def test_each_fault_has_its_own_error(stub: http_stub.Stub, body: object, status: int, error: str) -> None:
    stub.answers(body, status=status)
    (answer,) = await ask(stub.url, MINE, **BY_URL)
    assert error in message(answer)
    assert isinstance(answer, AdapterError)
    assert answer.blame == "source"
    assert len(stub.requests) == 1  # no retry: that is hpad's own


async def test_no_redirect_is_followed_and_no_cookie_is_kept(stub: http_stub.Stub) -> None:
    stub.answers(number(), status=307, Location="http://localhost:1/")
    (answer,) = await ask(stub.url, MINE, **BY_URL)
    assert message(answer).endswith("a redirect (307), which is not followed: write the final address")
    stub.answers(number(), **{"Set-Cookie": "a=b; Path=/"})
    async with testing.context("sqs") as context:
        adapter = Sqs(settings(stub.url.replace("127.0.0.1", "localhost"), **BY_URL), context)
        for _ in range(2):
            assert values(await adapter.answer([MINE])) == [5000]
        await adapter.aclose()
    assert "Cookie" not in stub.requests[-1].headers


async def test_a_new_client_after_a_failure_reads_rotated_keys(stub: http_stub.Stub, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("old")
    keys = {"secret_access_key": "", "secret_access_key_file": str(secret)}
    async with testing.context("sqs") as context:
        adapter = Sqs(settings(stub.url, **keys, **BY_URL), context)
        stub.answers({"__type": "#SignatureDoesNotMatch", "message": "no"}, status=403)
        (refused,) = await adapter.answer([MINE])
        secret.unlink()
        with pytest.raises(AdapterError, match="cannot be read"):
            await adapter.answer([MINE])
        secret.write_text("new")
        stub.answers(number())
        assert values(await adapter.answer([MINE])) == [5000]
        await adapter.aclose()
    assert "SignatureDoesNotMatch" in message(refused)


async def test_a_failure_breaks_off_no_call_of_others(stub: http_stub.Stub) -> None:
    """A new client follows it, while a batch waits for a slow queue."""
    asked, slow, other = asyncio.Event(), asyncio.Event(), testing.external("other")

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if "slow" in await request.text():
            asked.set()
            await slow.wait()
        if "denied" in await request.text():
            return web.json_response({"__type": "#AccessDenied", "message": "not yours"}, status=403)
        return web.json_response(number())

    stub.handler = handle
    metrics = {
        name: {"queue": f"https://sqs.example.com/{ACCOUNT}/{name}", "counts": ["visible"]}
        for name in ("slow", "denied", "other")
    }
    async with testing.context("sqs") as context:
        adapter = Sqs(settings(stub.url, metrics=metrics), context)
        waiting = asyncio.create_task(adapter.answer([testing.external("slow")]))
        await asked.wait()
        denied, *others = await adapter.answer([testing.external("denied"), other])
        others += await adapter.answer([other])
        slow.set()
        assert values([*await waiting, *others]) == [5000] * 3
        assert "AccessDenied" in message(denied)
        await adapter.aclose()


async def test_a_server_that_is_down_or_breaks_off_is_an_error(stub: http_stub.Stub) -> None:
    (down,) = await ask(f"http://127.0.0.1:{ports.free(1)[0]}", MINE, **BY_URL)
    assert "Could not connect" in message(down)
    (broken,) = await ask(stub.url, MINE, **BY_URL)
    assert "Connection was closed" in message(broken)


async def test_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    stub = http_stub.Stub()
    stub.answers(number())
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    expired = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", not_after=past).configure_cert(expired)
    async with (
        http_stub.serving(stub.handle, tls=http_stub.server_tls(authority)) as good,
        http_stub.serving(stub.handle, tls=expired) as bad,
    ):
        (untrusted,) = await ask(good, MINE, **BY_URL)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
        assert values(await ask(good, MINE, **BY_URL)) == [5000]
        (old,) = await ask(bad, MINE, **BY_URL)
    assert "SSL validation failed" in message(untrusted)
    assert "expired" in message(old)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"access_key_id": "A"}, "access_key_id: needs one of"),
        ({"secret_access_key": SECRET}, "secret_access_key: needs the access_key_id"),
        ({"secret_access_key": SECRET, "secret_access_key_env": "B", "access_key_id": "A"}, "give one of"),
        ({**KEYS, "profile": "p"}, "profile: write either profile or access_key_id"),
        ({"account": "12"}, "account: '12' is not the number of an account"),
        ({"role_arn": "hpad"}, "role_arn: 'hpad' is not of the form"),
        ({"external_id": "x"}, "external_id: has an effect with role_arn only"),
        ({"sts_endpoint_url": "https://sts"}, "sts_endpoint_url: has an effect with role_arn only"),
        ({"endpoint_url": "sqs"}, "endpoint_url: 'sqs' is not of the form"),
        ({"metrics": {"m": {"counts": []}}}, "counts: needs each of"),
        ({"metrics": {"m": {"counts": ["visible", "visible"]}}}, "at most once"),
        ({"metrics": {"m": {"queue": "a/b"}}}, "queue: 'a/b' is not of the form"),
        ({"metrics": {"m": {"queue": f"arn:aws:sqs:eu-central-1:{ACCOUNT}:a"}}}, "queue: 'arn:.* is an ARN; write the"),
        ({"queues": {"a": f"arn:aws:sqs:eu-central-1:{ACCOUNT}:a"}}, "queues: a: 'arn:.* is an ARN"),
        ({"queues": {"a": f"https://k:{SECRET}@sqs.example.com/1/a"}}, "queues: a: contains credentials"),
    ],
)
def test_invalid_settings_are_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=error) as refused:
        msgspec.convert(options, SqsSettings)
    assert SECRET not in str(refused.value)
