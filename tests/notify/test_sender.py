"""Messages to real HTTP servers: retries, bounds, secrets and texts."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
import trustme
from aiohttp import web
from support.engine import Workload, external, series
from support.http_stub import Stub, hang_up, server_tls, serving

from hpad.api.hpa import from_builtins
from hpad.api.sample import AdapterError
from hpad.clock import SystemClock
from hpad.engine import controls
from hpad.notify import sender as senders
from hpad.notify.notices import Notices
from hpad.settings.notify import NotifySettings, notify
from hpad.telemetry import Telemetry

PATH = "/services/T0/B0/s3cr3tw0rd"
FORMS = ("slack", "cloudevents")
AT_MOST_4 = {"hpad.io/schedule": "0 0 * * * for 24h: max=4"}
controls.read(AT_MOST_4)  # reads the file of the time zone, which a coroutine must not


class Hasty(SystemClock):
    """A clock that does not sleep; `slept` has the seconds, `ahead` is added to the monotonic time."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Post:
    """Notices with one destination `ops`, which is the stub."""

    def __init__(self, folder: Path, stub: Stub) -> None:
        self.stub, self.clock, self.telemetry = stub, Hasty(), Telemetry()
        self.bodies: list[Any] = []
        self.statuses: list[int] = []
        self.headers: dict[str, str] = {}
        self._file = folder / "url"
        self.notices: Notices

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.bodies.append(msgspec.json.decode(await request.read()))
        status = self.statuses.pop(0) if self.statuses else 200
        return web.Response(status=status, text=f"no such hook: {PATH}", headers=self.headers)

    def settings(self, form: str = "slack", **fields: Any) -> NotifySettings:
        self._file.write_text(f"{self.stub.url}{PATH}\n")
        ops = {"form": form, "url_file": str(self._file), **fields}
        return notify({"destinations": {"ops": ops}, "page": "https://hpad.example.com/", "cluster": "prod"})

    @contextlib.asynccontextmanager
    async def running(self, settings: NotifySettings) -> AsyncIterator[Notices]:
        self.notices = Notices(settings, self.clock, self.telemetry.notify)
        await self.notices.start()
        try:
            yield self.notices
        finally:
            await self.notices.stop()

    def rescale(self, name: str = "web", namespace: str = "default") -> None:
        workload = Workload(external("depth", averageValue="10"), replicas=1)
        metadata = {"name": name, "namespace": namespace}
        workload.hpa = msgspec.structs.replace(
            workload.hpa, metadata=from_builtins({"metadata": metadata, "spec": {"metrics": []}}).metadata
        )
        workload.reconcile(series(30))
        assert workload.done is not None
        self.notices.note(workload.done)

    async def counted(self, **expected: int) -> None:
        """Waits until so many messages have these results."""
        async with asyncio.timeout(60):
            while {result: self._count(result) for result in expected} != expected:  # noqa: ASYNC110  # nothing signals it
                await asyncio.sleep(0.01)

    def _count(self, result: str) -> int:
        labels = {"destination": "ops", "result": result}
        return int(self.telemetry.registry.get_sample_value("hpad_notify_messages_total", labels) or 0)


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    stub = Stub()
    made = Post(tmp_path, stub)
    stub.handler = made.handle

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        stub.requests.append(request)
        return await stub.handler(request)

    async with serving(handle) as stub.url:
        yield made


async def test_slack_gets_a_text_that_says_what_and_why(post: Post) -> None:
    async with post.running(post.settings()):
        post.rescale()
        await post.counted(sent=1)
    (request,) = post.stub.requests
    assert (request.method, request.path, request.content_type) == ("POST", PATH, "application/json")
    head, why, link = post.bodies[0]["text"].split("\n")
    assert head == ":arrows_counterclockwise: [prod] default/web was scaled from 1 to 3 replicas (Deployment/web)"
    assert why.startswith("scale web from 1 to 3: external metric depth above target (30 / 10")
    assert link == "<https://hpad.example.com/#/hpas/default/web|Open the page>"


@pytest.mark.parametrize(
    ("own", "high", "advice"), [({}, 4, "Raise maxReplicas if "), (AT_MOST_4, 20, "Its schedule sets this maximum")]
)
async def test_the_advice_says_where_a_maximum_is_to_be_raised(
    post: Post, own: dict[str, str], high: int, advice: str
) -> None:
    workload = Workload(external("depth", averageValue="10"), replicas=4, high=high, annotations=own)
    async with post.running(post.settings(causes=["at_max"])):
        for post.clock.ahead in (0.0, 901.0):
            workload.reconcile(series(90), after=15)
            assert workload.done is not None
            post.notices.note(workload.done)
        await post.counted(sent=1)
    head, _, found, _ = post.bodies[0]["text"].split("\n")
    assert "has been at its maximum of 4 replicas" in head
    assert found.startswith(advice)


async def test_a_cloud_event_has_its_attributes_and_data(post: Post) -> None:
    async with post.running(post.settings("cloudevents")):
        post.statuses = [503]
        post.rescale()
        await post.counted(sent=1)
    assert post.stub.requests[0].headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    first, again = post.bodies
    assert first == again  # with the same id
    assert {name: first[name] for name in ("specversion", "source", "type", "subject", "time")} == {
        "specversion": "1.0",
        "source": "urn:hpad:prod",
        "type": "io.hpad.rescale.begun",
        "subject": "default/web",
        "time": "2026-01-01T12:00:00Z",
    }
    assert len(first["id"]) == 32
    counts = {name: first["data"][name] for name in ("current", "desired", "maximum", "repeats", "namespace", "name")}
    assert counts == {"current": 1, "desired": 3, "maximum": 10, "repeats": 0, "namespace": "default", "name": "web"}


@pytest.mark.parametrize("form", FORMS)
async def test_a_server_error_is_tried_again_with_growing_pauses_and_a_bound(post: Post, form: str) -> None:
    async with post.running(post.settings(form)):
        post.statuses = [500, 502, 429, 503]
        with structlog.testing.capture_logs() as lines:
            post.rescale()
            await post.counted(failed=1)
            assert post.clock.slept[:3] == [1, 5, 25]
            assert len(post.bodies) == 4
            assert post.notices.troubles == ["messages to ops are not sent: it answers 503: no such hook: ***"]
            post.rescale("other")
            await post.counted(sent=1)
        assert post.notices.troubles == []
    assert [line["event"] for line in lines] == ["messages cannot be sent", "messages can be sent again"]
    assert {line["destination"] for line in lines} == {"ops"}
    assert PATH not in str(lines)
    assert "s3cr3tw0rd" not in str(lines)


async def test_the_pause_that_a_server_asks_for_is_kept_up_to_a_bound(post: Post) -> None:
    async with post.running(post.settings()):
        post.statuses, post.headers = [429], {"Retry-After": "42"}
        post.rescale()
        await post.counted(sent=1)
        post.statuses, post.headers = [429], {"Retry-After": "86400"}
        post.rescale("other")
        await post.counted(sent=2)
    assert post.clock.slept == [42, senders.LONGEST_PAUSE]


async def test_a_pause_that_is_none_is_as_long_as_without_one(post: Post) -> None:
    async with post.running(post.settings()):
        post.statuses, post.headers = [429], {"Retry-After": "Thu, 01 Jan 2099 00:00:00 GMT"}
        post.rescale()
        await post.counted(sent=1)
    assert post.clock.slept == [senders.PAUSES[0]]


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 403, 404, 410])
async def test_redirects_and_refusals_are_final(post: Post, status: int) -> None:
    async with post.running(post.settings()):
        post.statuses, post.headers = [status], {"Location": f"{post.stub.url}/elsewhere"}
        post.rescale()
        await post.counted(failed=1)
        (trouble,) = post.notices.troubles
    assert len(post.stub.requests) == 1
    assert str(status) in trouble
    assert ("redirect" in trouble) == (300 <= status < 400)


async def test_a_server_that_hangs_up_or_is_slow_or_absent(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    released = asyncio.Event()

    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        await released.wait()
        return web.Response()

    async with post.running(post.settings()):
        post.stub.handler = hang_up
        post.rescale()
        await post.counted(failed=1)
        assert post.notices.troubles == ["messages to ops are not sent: it closed the connection without an answer"]
    monkeypatch.setattr(senders, "ATTEMPT_SECONDS", 4.0)
    async with post.running(post.settings()):
        post.stub.handler = slow
        post.rescale("slow")
        await post.counted(failed=2)
        assert post.notices.troubles == ["messages to ops are not sent: it did not answer within 4s"]
        released.set()
        post.stub.handler = post.handle
        post.rescale("last")
        await post.counted(failed=2, sent=1)


async def test_of_an_endless_answer_the_status_counts(post: Post) -> None:
    """Not more of it is read than a first line may need."""
    statuses = [503, 200, 404]

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse(status=statuses.pop(0))
        await answer.prepare(request)
        while True:
            await answer.write(b"no such hook\n" * 8192)

    post.stub.handler = endless
    async with post.running(post.settings()):
        post.rescale()
        await post.counted(sent=1)
        assert post.notices.troubles == []
        post.rescale("other")
        await post.counted(sent=1, failed=1)
        assert post.notices.troubles == ["messages to ops are not sent: it answers 404: no such hook"]
    assert statuses == []


async def test_the_certificate_is_verified_and_no_token_leaves_the_machine_without_tls(
    post: Post, tmp_path: Path
) -> None:
    authority, token = trustme.CA(), tmp_path / "token"
    token.write_text("t0k3n-of-ops\n")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    here, post.stub.url = post.stub.url, "http://events.example.com"
    async with post.running(post.settings("cloudevents", token_file=str(token))):
        post.rescale()
        await post.counted(failed=1)
        (trouble,) = post.notices.troubles
        assert trouble.endswith(" token_file: a token is sent over https:// only, or to this machine")
    post.stub.url = here
    async with post.running(post.settings("cloudevents", token_file=str(token))):
        post.rescale()
        await post.counted(sent=1)
    found = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        found.append(request.headers.get("Authorization"))
        return web.Response()

    async with serving(handle, tls=server_tls(authority)) as post.stub.url:
        async with post.running(post.settings("cloudevents", token_file=str(token))):
            post.rescale()
            await post.counted(failed=2, sent=1)
            assert "certificate that is not trusted" in post.notices.troubles[0]
        trusting = post.settings("cloudevents", token_file=str(token), ca=str(tmp_path / "ca.crt"))
        async with post.running(trusting):
            post.rescale()
            await post.counted(sent=2)
    assert found == ["Bearer t0k3n-of-ops"]


async def test_many_hpas_that_rescale_at_once(post: Post) -> None:
    async with post.running(post.settings()):
        for number in range(200):
            post.rescale(f"web-{number}")
        for number in range(200):  # within the hour: counted, and not sent
            post.rescale(f"web-{number}")
        await post.counted(sent=200, dropped=0, failed=0)
    texts = [line for body in post.bodies for line in body["text"].split("\n\n")]
    assert [f"default/web-{number} " in text for number, text in enumerate(texts)] == [True] * 200
    assert len(post.bodies) == 10  # with 20 each, and a second between two
    assert post.clock.slept == [1.0] * 9


async def test_what_does_not_fit_the_queue_is_dropped_and_counted(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    assert senders.MOST_WAITING >= 1000, "so many HPAs may rescale at once"
    monkeypatch.setattr(senders, "MOST_WAITING", 100)
    async with post.running(post.settings()):
        for number in range(senders.MOST_WAITING + 7):
            post.rescale(f"web-{number}")
        await post.counted(sent=senders.MOST_WAITING, dropped=7)


async def test_one_destination_that_hangs_delays_no_other_and_the_stop_is_bounded(post: Post, tmp_path: Path) -> None:
    hanging, other = asyncio.Event(), tmp_path / "other"

    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        await hanging.wait()
        return web.Response()

    async with serving(hang) as url:
        other.write_text(f"{url}/other")
        both = notify(
            {
                "destinations": {
                    "hanging": {"form": "slack", "url_file": str(other)},
                    "ops": {"form": "slack", "url_file": str(tmp_path / "url")},
                }
            }
        )
        post.settings()
        began = asyncio.get_running_loop().time()
        async with post.running(both):
            post.rescale()
            await post.counted(sent=1)
        assert asyncio.get_running_loop().time() - began < 30
        hanging.set()
    labels = {"destination": "hanging", "result": "dropped"}
    assert post.telemetry.registry.get_sample_value("hpad_notify_messages_total", labels) == 1


async def test_a_bug_about_one_message_ends_no_other(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    async with post.running(post.settings()):
        with monkeypatch.context() as broken, structlog.testing.capture_logs() as lines:
            broken.setattr(senders, "body", lambda *_: {}[PATH])
            post.rescale()
            await post.counted(failed=1)
        post.rescale("other")
        await post.counted(sent=1)
    assert [(line["event"], line["error"]) for line in lines] == [("bug: a message could not be sent", "KeyError")]


async def test_a_stop_while_a_pause_lasts_is_bounded_and_counts_what_is_lost(post: Post) -> None:
    pauses, forever = asyncio.Event(), asyncio.Event()

    async def asleep(seconds: float) -> None:
        pauses.set()
        await forever.wait()

    post.clock.sleep = asleep  # type: ignore[method-assign]
    async with post.running(post.settings("cloudevents")):
        post.statuses, post.headers = [429] * 9, {"Retry-After": "300"}
        for name in ("a", "b", "c"):
            post.rescale(name)
        async with asyncio.timeout(60):
            await pauses.wait()  # not the request: before its answer is read, a stop lets the message fail at once
        began = time.monotonic()
    assert time.monotonic() - began < 60  # of the 300 s that the server asks for
    await post.counted(dropped=3, sent=0)


async def test_filters_of_causes_and_namespaces(post: Post) -> None:
    async with post.running(post.settings(causes=["rescale"], namespaces=["shop-*"])):
        post.rescale("web", "shop-eu")
        post.rescale("web", "default")
        await post.counted(sent=1)
    assert "shop-eu/web" in post.bodies[0]["text"]
    async with post.running(post.settings(causes=["failing"])):
        post.rescale()
    assert len(post.bodies) == 1


async def test_a_changed_destination_and_a_removed_one(post: Post) -> None:
    async with post.running(post.settings()) as notices:
        before = notices._senders["ops"]
        notices.retune(post.settings())
        assert notices._senders["ops"] is before
        notices.retune(post.settings("cloudevents"))
        post.rescale()
        await post.counted(sent=1)
        assert post.bodies[0]["type"] == "io.hpad.rescale.begun"
        notices.retune(NotifySettings())
        post.rescale("other")
        assert notices._known == {}


async def test_an_hpa_in_shadow_mode_tells_nothing(post: Post) -> None:
    async with post.running(post.settings()) as notices:
        workload = Workload(external("depth", averageValue="10"), replicas=1, annotations={"hpad.io/mode": "shadow"})
        workload.reconcile(series(30))
        assert workload.done is not None
        notices.note(workload.done)
        assert notices._known == {}
    assert post.bodies == []


async def test_a_text_from_outside_is_no_markup_and_mentions_nobody(post: Post) -> None:
    settings = post.settings()
    immediately = msgspec.structs.replace(settings.after, failing=timedelta(0))
    async with post.running(msgspec.structs.replace(settings, after=immediately)) as notices:
        workload = Workload(external("depth", averageValue="10"), replicas=1)
        workload.reconcile(AdapterError("<!channel> & <https://evil.example|click>\x1b[31m"))
        assert workload.done is not None
        notices.note(workload.done)
        await post.counted(sent=1)
    text = post.bodies[0]["text"]
    assert "&lt;!channel&gt; &amp; &lt;https://evil.example|click&gt;" in text
    assert "\x1b" not in text
    assert "default/web has been failing since 12:00:00Z" in text
    assert "`hpad explain -n default web` says more." in text


async def test_escapes_make_no_message_longer_than_its_share_of_a_text(post: Post) -> None:
    settings = post.settings()
    immediately = msgspec.structs.replace(settings.after, failing=timedelta(0))
    async with post.running(msgspec.structs.replace(settings, after=immediately)) as notices:
        workload = Workload(external("depth", averageValue="10"), replicas=1)
        workload.reconcile(AdapterError("&" * 600))
        assert workload.done is not None
        notices.note(workload.done)
        await post.counted(sent=1)
    _, why, _, _ = post.bodies[0]["text"].split("\n")
    assert len(why) == 600


async def test_an_address_and_a_token_that_cannot_be_sent_are_named(post: Post, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0k3n\x01of-ops\n")
    async with post.running(post.settings("cloudevents", token_file=str(tmp_path / "token"))):
        post.rescale()
        await post.counted(failed=1)
        (trouble,) = post.notices.troubles
        assert trouble.endswith(f"token_file: {tmp_path / 'token'} has more than one line, or control characters")
    post.stub.url = "http://events..example.com"
    async with post.running(post.settings()):
        post.rescale("other")
        await post.counted(failed=2)
        (trouble,) = post.notices.troubles
        assert trouble.endswith("it cannot be found: its host name is not valid")


async def test_a_missing_file_is_named_and_tried_again(post: Post) -> None:
    settings = post.settings()
    post._file.unlink()
    async with post.running(settings):
        post.rescale()
        await post.counted(failed=1)
        (trouble,) = post.notices.troubles
    assert trouble == f"messages to ops are not sent: url_file: {post._file} cannot be read: No such file or directory"
    post._file.write_text("not-an-address-but-s3cr3t")
    async with post.running(settings):
        post.rescale()
        await post.counted(failed=2)
        (trouble,) = post.notices.troubles
    assert trouble.endswith(f"url_file: the content of {post._file} is not of the form https://HOST/PATH")
