"""Caches against a server that misbehaves in every way a server can."""

import asyncio
import itertools
import json

import pytest
from kube.wire import QUICK, failure, hangs, line, resets, says, streams, until

from hpad.kube import codec, scale, watch
from hpad.kube.cache import Cache
from hpad.kube.cluster import HPA
from hpad.kube.pods import PodCache
from hpad.model.key import Key

HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
DEPLOYMENT = scale.WATCHED[0]


def hpa(name, version, **spec):
    meta = {"name": name, "namespace": "n", "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {"maxReplicas": 3, **spec}}


def page(*items, version=10, token=""):
    return says({"metadata": {"resourceVersion": str(version), "continue": token}, "items": list(items)})


def names(cache):
    return sorted(value.metadata.name for value in cache.values())


@pytest.fixture
async def cache(client):
    return Cache(client, HPA, pace=QUICK)


def lists(script):
    """How often everything was listed (a look at the server's version asks for one object)."""
    return sum(1 for _, path, query in script.asked if path == HPAS and query.get("limit") != "1")


async def synced(cache):
    await asyncio.wait_for(cache.synced.wait(), 5)


async def test_pages_are_put_together(script, cache, running):
    script.on("GET", HPAS, page(hpa("a", 1), token="t1"), page(hpa("b", 2), token="t2"), page(hpa("c", 3), version=12))
    script.on("GET", HPAS + "?watch", hangs)
    running(cache.run())
    await synced(cache)
    assert names(cache) == ["a", "b", "c"]
    await until(lambda: script.count(HPAS + "?watch"))
    lists = [query for _, path, query in script.asked if path == HPAS]
    assert lists == [{"limit": "500"}, {"limit": "500", "continue": "t1"}, {"limit": "500", "continue": "t2"}]
    ((_, _, watched),) = [asked for asked in script.asked if asked[1].endswith("?watch")]
    assert watched == {
        "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "12", "timeoutSeconds": "5",
    }  # fmt: skip


def complete(version):
    annotations = {"k8s.io/initial-events-end": "true"}
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": annotations}})


async def test_a_list_comes_as_a_stream_where_that_is_offered(script, cache, running):
    """What happens while the stream runs belongs to it: c is gone when it is complete, and so is what is not in it."""
    script.on("GET", HPAS + "?stream", streams(
        line("ADDED", hpa("a", 1)) + line("ADDED", hpa("c", 2)),
        line("BOOKMARK", {"metadata": {"resourceVersion": "8"}}),
        line("DELETED", hpa("c", 9)), line("ADDED", hpa("b", 3)), complete(12), then="hang",
    ))  # fmt: skip
    script.on("GET", HPAS + "?watch", hangs)
    cache.put(Key("n", "old"), codec.hpa(json.dumps(hpa("old", 1)).encode()).value, "1")
    running(cache.run())
    await synced(cache)
    assert names(cache) == ["a", "b"]
    await until(lambda: script.count(HPAS + "?watch"))
    (streamed,) = [query for _, path, query in script.asked if path.endswith("?stream")]
    assert streamed == {
        "watch": "true", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "",
        "allowWatchBookmarks": "true", "timeoutSeconds": "60",
    }  # fmt: skip
    assert script.asked[-1][2]["resourceVersion"] == "12"
    assert script.count(HPAS) == 0


async def test_the_recorded_stream_is_understood(script, cache, running, recorded):
    events = recorded("watch/hpa_watchlist_sendInitialEvents")["body"]
    script.on("GET", HPAS + "?stream", streams(*(json.dumps(event).encode() + b"\n" for event in events)))
    script.on("GET", HPAS + "?watch", hangs)
    running(cache.run())
    await synced(cache)
    assert names(cache) == [events[0]["object"]["metadata"]["name"]]


@pytest.mark.parametrize("then", ["end", "reset"])
async def test_a_stream_that_ends_too_early_is_no_list(script, cache, running, then):
    """What came is kept, nothing is let go, and the list is read again: page by page this time."""
    script.on("GET", HPAS + "?stream", streams(line("ADDED", hpa("a", 1)), then=then))
    script.on("GET", HPAS, page(hpa("a", 1), hpa("b", 2)))
    script.on("GET", HPAS + "?watch", hangs)
    running(cache.run())
    await synced(cache)
    assert names(cache) == ["a", "b"]
    assert [path for _, path, _ in script.asked][:2] == [HPAS + "?stream", HPAS]


async def test_a_long_page_lets_others_have_their_turns(script, client, running):
    """2,000 pods in one page: nobody else waits for longer than a fraction of it takes."""
    template = {"metadata": {"namespace": "n", "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}] * 8}}
    pods = [{**template, "metadata": {**template["metadata"], "name": f"p{index}"}} for index in range(2_000)]
    script.on("GET", "/api/v1/pods", page(*pods))
    script.on("GET", "/api/v1/pods?watch", hangs)
    cache = PodCache(client, pace=QUICK)
    running(cache.run())
    sizes = []
    while not cache.synced.is_set():
        sizes.append(len(cache))
        await asyncio.sleep(0)
    assert len(cache) == 2_000
    assert max(later - earlier for earlier, later in itertools.pairwise([*sizes, 2_000])) <= 64


async def test_an_expired_page_token_leads_to_one_full_list(script, cache, running, recorded):
    expired = says(recorded("pods/list_continue_expired_410")["body"], 410)
    script.on("GET", HPAS, page(hpa("a", 1), hpa("gone", 1), token="t1"), expired, page(hpa("a", 1), hpa("b", 2)))
    script.on("GET", HPAS + "?watch", hangs)
    running(cache.run())
    await synced(cache)
    assert names(cache) == ["a", "b"]
    assert script.asked[2][2] == {}


async def test_changes_are_followed_and_told(script, cache, running):
    script.on("GET", HPAS, page(hpa("a", 1), hpa("b", 2)))
    changes = [
        line("ADDED", hpa("c", 11)),
        line("MODIFIED", hpa("a", 12, maxReplicas=9)),
        line("DELETED", hpa("b", 13)),
    ]
    script.on("GET", HPAS + "?watch", streams(*changes, then="hang"))
    told = []
    cache.subscribe(
        lambda key, old, new: told.append((str(key), old and old.spec.max_replicas, new and new.spec.max_replicas))
    )
    running(cache.run())
    await until(lambda: names(cache) == ["a", "c"])
    assert told == [("n/a", None, 3), ("n/b", None, 3), ("n/c", None, 3), ("n/a", 3, 9), ("n/b", 3, None)]
    assert cache.get(Key("n", "a")).spec.max_replicas == 9


@pytest.mark.parametrize(
    "body", [b"{}", b'{"kind":"Status","code":500}', b"null", b"[]", b"", b'{"items":[]}', b"<html>"]
)
async def test_what_is_no_list_is_no_empty_list(script, cache, running, body):
    expired = says(failure(410, "Expired", "old"), 410)
    script.on("GET", HPAS, page(hpa("a", 1)), says(body), says(body), page(hpa("a", 1), hpa("b", 20), version=21))
    script.on("GET", HPAS + "?watch", expired, hangs)
    told = []
    cache.subscribe(lambda key, old, new: told.append((key.name, new is not None)))
    running(cache.run())
    await until(lambda: script.count(HPAS + "?watch") == 2)
    assert told == [("a", True), ("b", True)]


async def test_a_watch_goes_on_from_the_last_bookmark(script, cache, running):
    script.on("GET", HPAS, page(hpa("a", 1)), page(version=80))
    bookmark = line("BOOKMARK", {"kind": "HorizontalPodAutoscaler", "metadata": {"resourceVersion": "77"}})
    script.on("GET", HPAS + "?watch", streams(bookmark), hangs)
    running(cache.run())
    await until(lambda: script.count(HPAS + "?watch") == 2)
    assert [query["resourceVersion"] for _, path, query in script.asked if path.endswith("?watch")] == ["10", "77"]
    assert names(cache) == ["a"]
    assert lists(script) == 1


@pytest.mark.parametrize("end", ["end", "reset"])
async def test_a_truncated_line_never_becomes_an_object(script, cache, running, end):
    whole, cut = line("ADDED", hpa("b", 11)), line("ADDED", hpa("ghost", 12))[:-1]
    script.on("GET", HPAS, page(hpa("a", 1)), page(version=50))
    script.on("GET", HPAS + "?watch", streams(whole, cut[:-20], then=end), streams(whole, cut, then=end), hangs)
    running(cache.run())
    await until(lambda: script.count(HPAS + "?watch") == 3)
    assert names(cache) == ["a", "b"]
    assert script.asked[-1][2]["resourceVersion"] == "11"


@pytest.mark.parametrize("garbage", [b"<html>oops</html>\n", b'{"type":"ADDED","obj\n', b"\xff\xfe\x00\n", b"{}\n"])
async def test_garbage_is_waited_out(script, cache, running, clock, garbage):
    script.on("GET", HPAS, page(hpa("a", 1)))
    good = streams(line("ADDED", hpa("b", 11)), then="hang")
    script.on("GET", HPAS + "?watch", streams(garbage), says(b"<html>", 503), good)
    running(cache.run())
    await until(lambda: names(cache) == ["a", "b"])
    assert clock.slept
    assert cache.trouble is None
    assert lists(script) == 1


async def test_an_expired_version_leads_to_a_list_that_finds_missed_deletions(script, cache, running, recorded):
    (expired,) = recorded("watch/hpa_410_error_event")["body"]
    script.on("GET", HPAS, page(hpa("a", 1), hpa("b", 2)), page(hpa("b", 2), hpa("c", 20), version=21))
    script.on("GET", HPAS + "?watch", streams(line(expired["type"], expired["object"])), hangs)
    told = []
    cache.subscribe(lambda key, old, new: told.append((key.name, old is not None, new is not None)))
    running(cache.run())
    await until(lambda: names(cache) == ["b", "c"])
    assert told == [("a", False, True), ("b", False, True), ("c", False, True), ("a", True, False)]


async def test_410_in_answer_to_a_watch_leads_to_a_list(script, cache, running):
    script.on("GET", HPAS, page(hpa("a", 1)), page(hpa("b", 2)))
    script.on("GET", HPAS + "?watch", says(failure(410, "Expired", "too old resource version: 10 (99)"), 410), hangs)
    running(cache.run())
    await until(lambda: names(cache) == ["b"])


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered(script, cache, running, clock):
    script.on("GET", HPAS, page(hpa("a", 1)))
    script.on("GET", HPAS + "?watch", streams())
    running(cache.run())
    await until(lambda: script.count(HPAS + "?watch") >= 8)
    asked = script.count(HPAS + "?watch")
    assert sum(clock.slept) > 0.25 * (2**4 - 1)
    assert len(clock.slept) >= asked - 1


async def test_a_server_that_fails_every_list_is_asked_less_and_less(script, cache, running, clock):
    script.on("GET", HPAS, says(failure(500, "InternalError", "boom"), 500))
    running(cache.run())
    await until(lambda: script.count(HPAS) >= 7)
    assert not cache.synced.is_set()
    assert cache.trouble == "horizontalpodautoscalers.autoscaling: boom"
    for wait, most in zip(clock.slept, [0.5, 1, 2, 4, 8, 8], strict=False):
        assert most / 2 <= wait <= most


async def test_reset_connections_are_waited_out(script, cache, running):
    script.on("GET", HPAS, resets, resets, page(hpa("a", 1)), page(version=50))
    script.on("GET", HPAS + "?watch", resets, streams(line("ADDED", hpa("b", 11)), then="reset"), hangs)
    running(cache.run())
    await until(lambda: script.count(HPAS + "?watch") == 3)
    assert names(cache) == ["a", "b"]


async def test_a_server_that_starts_afresh_is_believed(script, cache, running):
    """Versions begin again at 1 where the server's storage was lost: what is held is newer only by its number."""
    refused = says(failure(504, "Timeout", "Too large resource version: 99, current: 3"), 504)
    script.on("GET", HPAS, page(hpa("a", 98), hpa("b", 99), version=99), page(hpa("a", 2, maxReplicas=7), version=3))
    script.on("GET", HPAS + "?watch", refused, refused, refused, hangs)
    running(cache.run())
    await until(lambda: names(cache) == ["a"])
    assert cache.get(Key("n", "a")).spec.max_replicas == 7


async def test_a_bookmark_of_the_past_is_not_believed(script, cache, running):
    script.on("GET", HPAS, page(hpa("a", 98), version=99), page(hpa("b", 2), version=3))
    past = line("BOOKMARK", {"metadata": {"resourceVersion": "3"}})
    script.on("GET", HPAS + "?watch", streams(past, then="hang"), hangs)
    running(cache.run())
    await until(lambda: names(cache) == ["b"])


@pytest.mark.parametrize("breaks", [[resets, resets], [streams()]], ids=["reset", "ended early"])
async def test_after_a_break_a_server_that_knows_less_is_listed_again(script, cache, running, breaks):
    """From a version of the future a watch brings nothing, and does not say so."""
    script.on("GET", HPAS, page(hpa("a", 98), version=99), page(version=3), page(hpa("b", 2), version=3))
    script.on("GET", HPAS + "?watch", *breaks, hangs)
    running(cache.run())
    await until(lambda: names(cache) == ["b"] and script.asked[-1][1].endswith("?watch"))
    assert script.asked[-1][2]["resourceVersion"] == "3"


async def test_what_was_written_is_not_overtaken_by_older_news(script, cache, running):
    script.on("GET", HPAS, page(hpa("a", 1)))
    changes = [0.05, line("MODIFIED", hpa("a", 11)), line("MODIFIED", hpa("b", 12))]
    script.on("GET", HPAS + "?watch", streams(*changes, then="hang"))
    running(cache.run())
    await synced(cache)
    written = codec.hpa(b'{"metadata":{"name":"a","namespace":"n","resourceVersion":"15"},"spec":{"maxReplicas":8}}')
    cache.offer(written.key, written.value)
    await until(lambda: names(cache) == ["a", "b"])
    assert cache.get(Key("n", "a")).spec.max_replicas == 8


async def test_an_event_of_five_megabytes(script, cache, running):
    script.on("GET", HPAS, page())
    big = hpa("big", 11)
    big["metadata"]["annotations"] = {"x": "y" * 5_000_000}
    script.on("GET", HPAS + "?watch", streams(line("ADDED", big), line("ADDED", hpa("b", 12)), then="hang"))
    running(cache.run())
    await until(lambda: names(cache) == ["b", "big"])


async def test_one_odd_object_spoils_none_of_the_others(script, cache, running):
    script.on("GET", HPAS, page(hpa("a", 1), hpa("odd", 2, maxReplicas="many"), hpa("c", 3)))
    odd = line("MODIFIED", hpa("a", 11, maxReplicas=[]))
    script.on("GET", HPAS + "?watch", streams(odd, line("ADDED", hpa("d", 12)), then="hang"))
    running(cache.run())
    await until(lambda: names(cache) == ["c", "d"])


async def test_a_silent_watch_counts_as_dead(script, client, running):
    pace = watch.Pace(shortest=0.05, longest=0.05, grace=0.1, first=0.01)
    cache = Cache(client, HPA, pace=pace)
    script.on("GET", HPAS, page(hpa("a", 1)))
    script.on("GET", HPAS + "?watch", hangs)
    running(cache.run())
    await until(lambda: script.count(HPAS + "?watch") >= 2)
    assert names(cache) == ["a"]


async def test_staleness_grows_while_nothing_is_heard(script, cache, running, clock):
    script.on("GET", HPAS, page(hpa("a", 1)))
    script.on("GET", HPAS + "?watch", hangs)
    running(cache.run())
    await synced(cache)
    now = clock.monotonic()
    assert cache.staleness(now) < 1
    assert cache.staleness(now + 60) == pytest.approx(cache.staleness(now) + 60)


async def test_namespaces_are_listed_each_for_itself(script, client, running):
    cache = Cache(client, DEPLOYMENT, namespaces=("n", "m"), params={"labelSelector": "a=b"}, pace=QUICK)

    def deployments(*items):
        return page(
            *({"metadata": {"name": name, "namespace": space, "resourceVersion": "1"}} for space, name in items)
        )

    for space in ("n", "m"):
        path = f"/apis/apps/v1/namespaces/{space}/deployments"
        script.on("GET", path, deployments((space, "x"), (space, "y")), deployments((space, "y")))
    script.on("GET", "/apis/apps/v1/namespaces/n/deployments?watch", hangs)
    script.on("GET", "/apis/apps/v1/namespaces/m/deployments?watch", says(failure(410, "Expired", "old"), 410), hangs)
    running(cache.run())
    await synced(cache)
    await until(lambda: len(cache) == 3)
    assert sorted(str(value.key) for value in cache.values()) == ["m/y", "n/x", "n/y"]
    assert cache.covers("n")
    assert not cache.covers("elsewhere")
    assert {query.get("labelSelector") for _, _, query in script.asked} == {"a=b"}


async def test_the_same_object_again_is_no_change(script, cache, running):
    script.on("GET", HPAS, page(hpa("a", 1)), page(hpa("a", 1), version=30))
    script.on("GET", HPAS + "?watch", says(failure(410, "Expired", "old"), 410), hangs)
    told = []
    cache.subscribe(lambda key, old, new: told.append(key.name))
    running(cache.run())
    await until(lambda: script.count(HPAS + "?watch") == 2)
    assert told == ["a"]
