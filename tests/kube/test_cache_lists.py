"""How caches are filled: lists in pages, streaming lists, and answers that are no lists."""

import asyncio
import itertools
import json

import pytest
import structlog
from support.kube_caches import HPAS, hpa, names, page, synced
from support.scripted_server import QUICK, failure, hangs, line, says, streams, until

from hpad.api.metadata import Key
from hpad.kube import hpas, scale
from hpad.kube.cache import Cache
from hpad.kube.pods import PodCache
from hpad.kube.reflector import WatchScope

DEPLOYMENT = scale.WATCHED[0]


async def test_a_list_is_read_in_pages(script, cache, running):
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


async def test_a_list_is_read_as_a_stream_if_the_server_supports_it(script, cache, running):
    """Changes during the stream are applied: c was deleted. An object that the stream does not name is dropped."""
    script.on("GET", HPAS + "?stream", streams(
        line("ADDED", hpa("a", 1)) + line("ADDED", hpa("c", 2)),
        line("BOOKMARK", {"metadata": {"resourceVersion": "8"}}),
        line("DELETED", hpa("c", 9)), line("ADDED", hpa("b", 3)), complete(12), then="hang",
    ))  # fmt: skip
    script.on("GET", HPAS + "?watch", hangs)
    cache.put(hpas.hpa(json.dumps(hpa("old", 1)).encode()))
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


async def test_a_recorded_streaming_list_is_read(script, cache, running, recorded):
    events = recorded("watch/hpa_watchlist_sendInitialEvents")["body"]
    script.on("GET", HPAS + "?stream", streams(*(json.dumps(event).encode() + b"\n" for event in events)))
    script.on("GET", HPAS + "?watch", hangs)
    running(cache.run())
    await synced(cache)
    assert names(cache) == [events[0]["object"]["metadata"]["name"]]


async def test_lists_are_read_in_pages_without_a_warning_if_etcd_is_too_old_for_streams(script, cache, running):
    """The text is that of kube-apiserver 1.36 with etcd 3.4.23, which cannot report the progress of a watch."""
    message = (
        "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled"
    )
    script.on("GET", HPAS + "?stream", says(failure(500, "InternalError", message), 500))
    script.on("GET", HPAS, page(hpa("a", 1)))
    script.on("GET", HPAS + "?watch", hangs)
    with structlog.testing.capture_logs() as logged:
        running(cache.run())
        await synced(cache)
    assert names(cache) == ["a"]
    assert [entry for entry in logged if entry["log_level"] == "warning"] == []
    assert [path for _, path, _ in script.asked][:2] == [HPAS + "?stream", HPAS]


@pytest.mark.parametrize("then", ["end", "reset"])
async def test_a_streaming_list_that_ends_early_is_followed_by_a_list_in_pages(script, cache, running, then):
    """Received objects are kept, and nothing is dropped until the list is complete."""
    script.on("GET", HPAS + "?stream", streams(line("ADDED", hpa("a", 1)), then=then))
    script.on("GET", HPAS, page(hpa("a", 1), hpa("b", 2)))
    script.on("GET", HPAS + "?watch", hangs)
    running(cache.run())
    await synced(cache)
    assert names(cache) == ["a", "b"]
    assert [path for _, path, _ in script.asked][:2] == [HPAS + "?stream", HPAS]


async def test_other_tasks_run_while_a_long_page_is_decoded(script, client, running):
    """With 2,000 pods in one page, other tasks run after each 64 pods."""
    template = {"metadata": {"namespace": "n", "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}] * 8}}
    pods = [{**template, "metadata": {**template["metadata"], "name": f"p{index}"}} for index in range(2_000)]
    script.on("GET", "/api/v1/pods", page(*pods))
    script.on("GET", "/api/v1/pods?watch", hangs)
    cache = PodCache(WatchScope(client, options=QUICK))
    running(cache.run())
    sizes = []
    while not cache.synced.is_set():
        sizes.append(len(cache))
        await asyncio.sleep(0)
    assert len(cache) == 2_000
    assert max(later - earlier for earlier, later in itertools.pairwise([*sizes, 2_000])) <= 64


async def test_replicas_share_one_mapping_of_labels_and_other_pods_equal_values(script, client, running):
    """Pods that are listed, changed and added share labels alike."""
    sets = {"a": {"hash": "7"}, "b": {"hash": "7"}, "c-0": {"index": "0"}, "c-1": {"index": "1"}}

    def pod(name, version):
        labels = {"app": "web", **sets.get(name, sets["a"])}
        return {"metadata": {"name": name, "namespace": "n", "resourceVersion": str(version), "labels": labels}}

    script.on("GET", "/api/v1/pods", page(*(pod(name, 1) for name in sets)))
    changes = [line("MODIFIED", pod("a", 11)), line("MODIFIED", pod("c-0", 12)), line("ADDED", pod("d", 13))]
    script.on("GET", "/api/v1/pods?watch", streams(*changes, then="hang"))
    cache = PodCache(WatchScope(client, options=QUICK))
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
async def test_an_answer_that_is_no_list_removes_no_objects(script, cache, running, body):
    expired = says(failure(410, "Expired", "old"), 410)
    script.on("GET", HPAS, page(hpa("a", 1)), says(body), says(body), page(hpa("a", 1), hpa("b", 20), version=21))
    script.on("GET", HPAS + "?watch", expired, hangs)
    changes = []
    cache.subscribe(lambda key, old, new: changes.append((key.name, new is not None)))
    running(cache.run())
    await until(lambda: script.count(HPAS + "?watch") == 2)
    assert changes == [("a", True), ("b", True)]


async def test_the_delay_before_a_list_doubles_after_each_failure(script, cache, running, clock):
    script.on("GET", HPAS, says(failure(500, "InternalError", "boom"), 500))
    running(cache.run())
    await until(lambda: script.count(HPAS) >= 7)
    assert not cache.synced.is_set()
    assert cache.trouble == "horizontalpodautoscalers.autoscaling: boom"
    for delay, longest in zip(clock.slept[:6], [0.5, 1, 2, 4, 8, 8], strict=True):
        assert longest / 2 <= delay <= longest


async def test_each_namespace_has_a_list_of_its_own(script, client, running):
    cache = Cache(WatchScope(client, ("n", "m"), QUICK), DEPLOYMENT, params={"labelSelector": "a=b"})

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
    assert sorted(map(str, cache.keys(""))) == ["m/y", "n/x", "n/y"]
    assert cache.covers("n")
    assert not cache.covers("elsewhere")
    assert {query.get("labelSelector") for _, _, query in script.asked} == {"a=b"}
