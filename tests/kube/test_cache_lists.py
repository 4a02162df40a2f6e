"""How caches are filled: pages, streams, and whatever comes in place of a list."""

import asyncio
import itertools
import json

import pytest
import structlog
from support.kube_caches import HPAS, hpa, names, page, synced
from support.scripted_server import QUICK, failure, hangs, line, says, streams, until

from hpad.api.metadata import Key
from hpad.kube import codec, scale
from hpad.kube.cache import Cache, PodCache

DEPLOYMENT = scale.WATCHED[0]


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
    cache.put(codec.hpa(json.dumps(hpa("old", 1)).encode()))
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


async def test_an_old_etcd_is_no_failure_but_lists_are_read_by_pages(script, cache, running):
    """The words are those of a kube-apiserver 1.36 on etcd 3.4.23, which cannot ask a watch for its progress."""
    told = (
        "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled"
    )
    script.on("GET", HPAS + "?stream", says(failure(500, "InternalError", told), 500))
    script.on("GET", HPAS, page(hpa("a", 1)))
    script.on("GET", HPAS + "?watch", hangs)
    with structlog.testing.capture_logs() as said:
        running(cache.run())
        await synced(cache)
    assert names(cache) == ["a"]
    assert [entry for entry in said if entry["log_level"] == "warning"] == []
    assert [path for _, path, _ in script.asked][:2] == [HPAS + "?stream", HPAS]


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
    cache = PodCache(client, reflector_options=QUICK)
    running(cache.run())
    sizes = []
    while not cache.synced.is_set():
        sizes.append(len(cache))
        await asyncio.sleep(0)
    assert len(cache) == 2_000
    assert max(later - earlier for earlier, later in itertools.pairwise([*sizes, 2_000])) <= 64


async def test_replicas_share_their_labels_and_others_the_values_that_they_have_in_common(script, client, running):
    """Whichever way they come, and for as long as there are any of them."""
    sets = {"a": {"hash": "7"}, "b": {"hash": "7"}, "c-0": {"index": "0"}, "c-1": {"index": "1"}}

    def pod(name, version):
        labels = {"app": "web", **sets.get(name, sets["a"])}
        return {"metadata": {"name": name, "namespace": "n", "resourceVersion": str(version), "labels": labels}}

    script.on("GET", "/api/v1/pods", page(*(pod(name, 1) for name in sets)))
    changes = [line("MODIFIED", pod("a", 11)), line("MODIFIED", pod("c-0", 12)), line("ADDED", pod("d", 13))]
    script.on("GET", "/api/v1/pods?watch", streams(*changes, then="hang"))
    cache = PodCache(client, reflector_options=QUICK)
    running(cache.run())
    await until(lambda: cache.get(Key("n", "d")) is not None)
    a, b, d, *others = (cache.get(Key("n", name)).labels for name in ("a", "b", "d", "c-0", "c-1"))
    assert a is b is d
    assert others == [{"app": "web", "index": "0"}, {"app": "web", "index": "1"}]
    assert all(labels["app"] is a["app"] for labels in others)


async def test_an_expired_page_token_leads_to_one_full_list(script, cache, running, recorded):
    expired = says(recorded("pods/list_continue_expired_410")["body"], 410)
    script.on("GET", HPAS, page(hpa("a", 1), hpa("gone", 1), token="t1"), expired, page(hpa("a", 1), hpa("b", 2)))
    script.on("GET", HPAS + "?watch", hangs)
    running(cache.run())
    await synced(cache)
    assert names(cache) == ["a", "b"]
    assert script.asked[2][2] == {}


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


async def test_a_server_that_fails_every_list_is_asked_less_and_less(script, cache, running, clock):
    script.on("GET", HPAS, says(failure(500, "InternalError", "boom"), 500))
    running(cache.run())
    await until(lambda: script.count(HPAS) >= 7)
    assert not cache.synced.is_set()
    assert cache.trouble == "horizontalpodautoscalers.autoscaling: boom"
    for wait, most in zip(clock.slept, [0.5, 1, 2, 4, 8, 8], strict=False):
        assert most / 2 <= wait <= most


async def test_namespaces_are_listed_each_for_itself(script, client, running):
    cache = Cache(client, DEPLOYMENT, namespaces=("n", "m"), params={"labelSelector": "a=b"}, reflector_options=QUICK)

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
