"""Watch streams: initial events, changes, bookmarks and their end."""

import asyncio
import json

import pytest

HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def configmap(name, **labels):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


def types_and_names(events):
    return [(event["type"], event["object"]["metadata"].get("name")) for event in events]


async def test_changes_since_a_revision_arrive_in_order(start, recorded):
    client = await start(controllers=False, kubelet=False)
    since = client.cluster.store.revision
    _, made = await client.ask("POST", CONFIGMAPS, configmap("w-1"))
    await client.ask("PUT", f"{CONFIGMAPS}/w-1", {**made, "data": {"a": "b"}})
    await client.ask("DELETE", f"{CONFIGMAPS}/w-1")
    path = f"{CONFIGMAPS}?watch=true&resourceVersion={since}"
    events = await client.watch(path, 3)
    assert types_and_names(events) == [("ADDED", "w-1"), ("MODIFIED", "w-1"), ("DELETED", "w-1")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert events[2]["object"]["data"] == {"a": "b"}
    real = recorded("watch/hpa_added_modified_deleted_bookmark")["body"]
    assert events[0].keys() == real[0].keys()
    assert list(events[0]["object"])[:3] == list(real[0]["object"])[:3] == ["kind", "apiVersion", "metadata"]


@pytest.mark.parametrize(
    ("seconds", "timeout", "count"),
    [pytest.param(0.2, 600, 2, id="in between"), pytest.param(60, 3, 1, id="before the end")],
)
async def test_bookmarks_are_sent_periodically_and_before_the_end(start, recorded, seconds, timeout, count):
    client = await start(controllers=False, kubelet=False, bookmark_seconds=seconds)
    now = client.cluster.store.revision
    path = f"{CONFIGMAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds={timeout}&resourceVersion={now}"
    events = await client.watch(path, 2)
    assert len(events) == count
    real = recorded("watch/hpa_added_modified_deleted_bookmark")["body"][-1]
    for event in events:
        assert event["type"] == real["type"] == "BOOKMARK"
        assert event["object"]["metadata"] == {"resourceVersion": str(now)}
        assert event["object"]["kind"] == "ConfigMap"


async def test_bookmarks_are_sent_only_on_request(start):
    client = await start(controllers=False, kubelet=False, bookmark_seconds=0.1)
    assert await client.watch(f"{CONFIGMAPS}?watch=true&timeoutSeconds=1&resourceVersion=1", 99) == []


async def test_a_compacted_revision_gets_one_error_event_and_the_end(start, recorded):
    client = await start(controllers=False, kubelet=False)
    client.cluster.apply(configmap("a"))
    client.cluster.store.compact()
    for path, name in ((HPAS, "watch/hpa_410_error_event"), (CONFIGMAPS, "watch/pods_410_error_event")):
        (event,) = await client.watch(f"{path}?watch=true&resourceVersion=1&timeoutSeconds=3", 99)
        (real,) = recorded(name)["body"]
        assert event["type"] == real["type"]
        assert event["object"]["message"].startswith("too old resource version: 1 (")
        assert {**event["object"], "message": ""} == {**real["object"], "message": ""}


async def test_a_full_history_drops_its_oldest_changes(start):
    client = await start(controllers=False, kubelet=False, history_limit=3)
    since = client.cluster.store.revision
    for name in "abcd":
        client.cluster.apply(configmap(name))
    (event,) = await client.watch(f"{CONFIGMAPS}?watch=true&resourceVersion={since}", 1)
    assert event["object"]["code"] == 410
    assert types_and_names(await client.watch(f"{CONFIGMAPS}?watch=true&resourceVersion={since + 1}", 3)) == [
        ("ADDED", "b"),
        ("ADDED", "c"),
        ("ADDED", "d"),
    ]


async def test_without_a_revision_the_current_objects_are_sent_first(start):
    client = await start(controllers=False, kubelet=False)
    client.cluster.apply(configmap("a"))
    for query in ("watch=true", "watch=true&resourceVersion=0"):
        assert types_and_names(await client.watch(f"{CONFIGMAPS}?{query}", 1)) == [("ADDED", "a")]


async def test_initial_events_end_with_an_annotated_bookmark(start, recorded):
    client = await start(controllers=False, kubelet=False)
    client.cluster.apply(configmap("a"))
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    events = await client.watch(f"{CONFIGMAPS}?{query}", 2)
    real = recorded("watch/hpa_watchlist_sendInitialEvents")["body"]
    assert [event["type"] for event in events] == [event["type"] for event in real]
    assert events[1]["object"]["metadata"] == {
        "resourceVersion": str(client.cluster.store.revision),
        "annotations": real[1]["object"]["metadata"]["annotations"],
    }


async def test_a_future_revision_gets_no_events(start, recorded):
    client = await start(controllers=False, kubelet=False)
    client.cluster.apply(configmap("a"))
    expected = recorded("watch/hpa_rv_in_future")["body"]
    path = f"{CONFIGMAPS}?watch=true&resourceVersion=99999999&timeoutSeconds=1"
    watching = asyncio.create_task(client.watch(path, 99))
    await asyncio.sleep(0.1)
    client.cluster.apply(configmap("b"))
    assert await watching == expected == []


async def test_an_object_that_stops_matching_is_sent_as_deleted(start):
    client = await start(controllers=False, kubelet=False)
    since = client.cluster.store.revision
    client.cluster.apply(configmap("a", app="web"))
    client.cluster.apply(configmap("a", app="other"))
    client.cluster.apply(configmap("a", app="web"))
    client.cluster.apply(configmap("b", app="other"))
    path = f"{CONFIGMAPS}?watch=true&resourceVersion={since}&labelSelector=app%3Dweb"
    assert types_and_names(await client.watch(path, 3)) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]


async def test_a_watch_covers_all_namespaces_or_one(start):
    client = await start(controllers=False, kubelet=False)
    elsewhere = configmap("b")
    elsewhere["metadata"]["namespace"] = "shop"
    since = client.cluster.store.revision
    client.cluster.apply(elsewhere)
    client.cluster.apply(configmap("a"))
    query = f"watch=true&resourceVersion={since}"
    assert types_and_names(await client.watch(f"/api/v1/configmaps?{query}", 2)) == [("ADDED", "b"), ("ADDED", "a")]
    assert types_and_names(await client.watch(f"{CONFIGMAPS}?{query}", 1)) == [("ADDED", "a")]


async def test_live_changes_arrive_while_the_stream_is_open(start):
    client = await start(controllers=False, kubelet=False)
    watching = asyncio.create_task(client.watch(f"{CONFIGMAPS}?watch=true&resourceVersion=1", 1))
    await asyncio.sleep(0.1)
    client.cluster.apply(configmap("late"))
    assert types_and_names(await watching) == [("ADDED", "late")]


async def test_the_end_of_the_cluster_ends_the_streams(start, until):
    client = await start(controllers=False, kubelet=False)
    watching = asyncio.create_task(client.watch(f"{CONFIGMAPS}?watch=true&resourceVersion=1", 1))
    await until(lambda: client.cluster.hub.streams)
    await client.cluster.stop()
    assert await watching == []


async def test_dropped_and_stalled_streams(start, until):
    client = await start(controllers=False, kubelet=False)
    watching = asyncio.create_task(client.watch(f"{CONFIGMAPS}?watch=true&resourceVersion=1", 1))
    await until(lambda: client.cluster.hub.streams)
    assert client.cluster.faults.drop_watches("pods") == 0
    assert client.cluster.faults.drop_watches("configmaps") == 1
    assert await watching == []
    client.cluster.faults.stall_watches()
    watching = asyncio.create_task(client.watch(f"{CONFIGMAPS}?watch=true&resourceVersion=1", 1))
    client.cluster.apply(configmap("a"))
    await asyncio.sleep(0.2)
    assert not watching.done()
    client.cluster.faults.clear()
    assert json.dumps(types_and_names(await watching)) == '[["ADDED", "a"]]'


async def test_a_closed_watch_is_removed(start, until):
    client = await start(controllers=False, kubelet=False)
    async with client.session.get(f"{client.cluster.url}{CONFIGMAPS}?watch=true&resourceVersion=1"):
        await until(lambda: client.cluster.hub.streams)
    await until(lambda: not client.cluster.hub.streams)
