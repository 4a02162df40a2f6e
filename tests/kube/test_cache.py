"""Caches and the faults of an API server: expired versions, broken connections, garbage, lost data."""

import asyncio
import dataclasses

import pytest
import structlog
from support.kube_caches import HPA, HPAS, hpa, lists, names, page, synced
from support.scripted_server import QUICK, failure, hangs, line, resets, says, streams, until

from hpad.api.metadata import Key
from hpad.kube import hpas, watch
from hpad.kube.cache import Cache
from hpad.kube.pods import Index, PodCache
from hpad.kube.reflector import ReflectorOptions, WatchScope


async def test_changes_are_applied_and_passed_to_subscribers(script, cache, running):
    script.on("GET", HPAS, page(hpa("a", 1), hpa("b", 2)))
    changes = [
        line("ADDED", hpa("c", 11)),
        line("MODIFIED", hpa("a", 12, maxReplicas=9)),
        line("DELETED", hpa("b", 13)),
    ]
    script.on("GET", HPAS + "?watch", streams(*changes, then="hang"))
    changes = []
    cache.subscribe(
        lambda key, old, new: changes.append((str(key), old and old.spec.max_replicas, new and new.spec.max_replicas))
    )
    running(cache.run())
    await until(lambda: names(cache) == ["a", "c"])
    assert changes == [("n/a", None, 3), ("n/b", None, 3), ("n/c", None, 3), ("n/a", 3, 9), ("n/b", 3, None)]
    assert cache.get(Key("n", "a")).spec.max_replicas == 9


async def test_a_watch_continues_from_the_last_bookmark(script, cache, running):
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
async def test_the_cache_recovers_from_garbage_in_a_watch(script, cache, running, clock, garbage):
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
    changes = []
    cache.subscribe(lambda key, old, new: changes.append((key.name, old is not None, new is not None)))
    running(cache.run())
    await until(lambda: names(cache) == ["b", "c"])
    assert changes == [("a", False, True), ("b", False, True), ("c", False, True), ("a", True, False)]


async def test_410_in_answer_to_a_watch_leads_to_a_list(script, cache, running):
    script.on("GET", HPAS, page(hpa("a", 1)), page(hpa("b", 2)))
    script.on("GET", HPAS + "?watch", says(failure(410, "Expired", "too old resource version: 10 (99)"), 410), hangs)
    running(cache.run())
    await until(lambda: names(cache) == ["b"])


async def test_lists_become_rarer_if_versions_expire_at_once(script, cache, running, clock):
    """The first list follows at once; the delays before the next ones double, each jittered by half."""
    script.on("GET", HPAS, page(hpa("a", 1)))
    script.on("GET", HPAS + "?watch", says(failure(410, "Expired", "too old resource version: 10 (99)"), 410))
    running(cache.run())
    await until(lambda: lists(script) >= 8)
    for delay, longest in zip(clock.slept[:6], [0.5, 1, 2, 4, 8, 8], strict=True):
        assert longest / 2 <= delay <= longest


async def test_watches_have_a_backoff_if_the_server_ends_each_one_at_once(script, cache, running, clock):
    script.on("GET", HPAS, page(hpa("a", 1)))
    script.on("GET", HPAS + "?watch", streams())
    running(cache.run())
    await until(lambda: script.count(HPAS + "?watch") >= 8)
    watches = script.count(HPAS + "?watch")
    assert sum(clock.slept) > 0.25 * (2**4 - 1)
    assert len(clock.slept) >= watches - 1


async def test_the_cache_recovers_from_reset_connections(script, cache, running):
    script.on("GET", HPAS, resets, resets, page(hpa("a", 1)), page(version=50))
    script.on("GET", HPAS + "?watch", resets, streams(line("ADDED", hpa("b", 11)), then="reset"), hangs)
    running(cache.run())
    await until(lambda: script.count(HPAS + "?watch") == 3)
    assert names(cache) == ["a", "b"]


async def test_the_objects_of_a_server_with_a_new_storage_replace_the_stored_ones(script, cache, running):
    """After the loss of its storage a server assigns versions from 1 again: stored objects have later versions."""
    refused = says(failure(504, "Timeout", "Too large resource version: 99, current: 3"), 504)
    script.on("GET", HPAS, page(hpa("a", 98), hpa("b", 99), version=99), page(hpa("a", 2, maxReplicas=7), version=3))
    script.on("GET", HPAS + "?watch", refused, refused, refused, hangs)
    running(cache.run())
    await until(lambda: names(cache) == ["a"])
    assert cache.get(Key("n", "a")).spec.max_replicas == 7


async def test_a_bookmark_with_an_earlier_version_leads_to_a_list(script, cache, running):
    script.on("GET", HPAS, page(hpa("a", 98), version=99), page(hpa("b", 2), version=3))
    past = line("BOOKMARK", {"metadata": {"resourceVersion": "3"}})
    script.on("GET", HPAS + "?watch", streams(past, then="hang"), hangs)
    running(cache.run())
    await until(lambda: names(cache) == ["b"])


@pytest.mark.parametrize("breaks", [[resets, resets], [streams()]], ids=["reset", "ended early"])
async def test_a_server_with_an_earlier_version_is_listed_after_a_lost_connection(script, cache, running, breaks):
    """A watch from a version that the server has not reached yet receives nothing, not even an error."""
    script.on("GET", HPAS, page(hpa("a", 98), version=99), page(version=3), page(hpa("b", 2), version=3))
    script.on("GET", HPAS + "?watch", *breaks, hangs)
    running(cache.run())
    await until(lambda: names(cache) == ["b"] and script.asked[-1][1].endswith("?watch"))
    assert script.asked[-1][2]["resourceVersion"] == "3"


async def test_a_written_object_is_not_replaced_by_an_earlier_version(script, cache, running):
    script.on("GET", HPAS, page(hpa("a", 1)))
    changes = [0.05, line("MODIFIED", hpa("a", 11)), line("MODIFIED", hpa("b", 12))]
    script.on("GET", HPAS + "?watch", streams(*changes, then="hang"))
    running(cache.run())
    await synced(cache)
    written = hpas.hpa(b'{"metadata":{"name":"a","namespace":"n","resourceVersion":"15"},"spec":{"maxReplicas":8}}')
    cache.offer(written)
    await until(lambda: names(cache) == ["a", "b"])
    assert cache.get(Key("n", "a")).spec.max_replicas == 8


async def test_the_echo_of_a_written_object_is_not_decoded(script, client, running):
    """Nor is any version that is stored; a change without a version is, since it may be another one."""
    decoded = []

    def decode(raw):
        decoded.append(watch.meta(raw).resource_version)
        return hpas.hpa(raw)

    cache = Cache(WatchScope(client, options=QUICK), dataclasses.replace(HPA, decode=decode))
    script.on("GET", HPAS, page(hpa("a", 1)))
    echoes = [line("MODIFIED", hpa("a", 15, maxReplicas=8)), line("MODIFIED", hpa("a", 15, maxReplicas=8))]
    changes = [
        0.05,
        *echoes,
        line("MODIFIED", hpa("a", 16)),
        line("MODIFIED", hpa("a", "")),
        line("DELETED", hpa("a", 17)),
    ]
    script.on("GET", HPAS + "?watch", streams(*changes, then="hang"))
    running(cache.run())
    await synced(cache)
    cache.offer(hpas.hpa(b'{"metadata":{"name":"a","namespace":"n","resourceVersion":"15"},"spec":{"maxReplicas":8}}'))
    await until(lambda: names(cache) == [])
    assert decoded == ["1", "16", "", "17"]


async def test_a_change_of_five_megabytes_is_read(script, cache, running):
    script.on("GET", HPAS, page())
    big = hpa("big", 11)
    big["metadata"]["annotations"] = {"x": "y" * 5_000_000}
    script.on("GET", HPAS + "?watch", streams(line("ADDED", big), line("ADDED", hpa("b", 12)), then="hang"))
    running(cache.run())
    await until(lambda: names(cache) == ["b", "big"])


async def test_an_unreadable_object_does_not_affect_the_others(script, cache, running):
    script.on("GET", HPAS, page(hpa("a", 1), hpa("odd", 2, maxReplicas="many"), hpa("c", 3)))
    odd = line("MODIFIED", hpa("a", 11, maxReplicas=[]))
    script.on("GET", HPAS + "?watch", streams(odd, line("ADDED", hpa("d", 12)), then="hang"))
    running(cache.run())
    await until(lambda: names(cache) == ["c", "d"])


async def test_a_silent_watch_counts_as_dead(script, client, running):
    reflector_options = ReflectorOptions(shortest_watch=0.05, longest_watch=0.05, grace=0.1, initial_backoff=0.01)
    cache = Cache(WatchScope(client, options=reflector_options), HPA)
    script.on("GET", HPAS, page(hpa("a", 1)))
    script.on("GET", HPAS + "?watch", hangs)
    running(cache.run())
    await until(lambda: script.count(HPAS + "?watch") >= 2)
    assert names(cache) == ["a"]


async def test_staleness_grows_while_the_watch_receives_nothing(script, cache, running, clock):
    script.on("GET", HPAS, page(hpa("a", 1)))
    script.on("GET", HPAS + "?watch", hangs)
    began = clock.monotonic()
    running(cache.run())
    await synced(cache)
    now = clock.monotonic()
    assert 0 <= cache.staleness(now) < now - began
    assert cache.staleness(now + 60) == pytest.approx(cache.staleness(now) + 60)


async def test_subscribers_are_not_called_for_an_unchanged_object(script, cache, running):
    script.on("GET", HPAS, page(hpa("a", 1)), page(hpa("a", 1), version=30))
    script.on("GET", HPAS + "?watch", says(failure(410, "Expired", "old"), 410), hangs)
    changes = []
    cache.subscribe(lambda key, old, new: changes.append(key.name))
    running(cache.run())
    await until(lambda: script.count(HPAS + "?watch") == 2)
    assert changes == ["a"]


async def test_a_list_replaces_an_object_of_the_same_version_with_other_content(script, cache, running):
    """After a restore from a backup a server assigns versions a second time. Unchanged objects are not reported."""
    expired = says(failure(410, "Expired", "old"), 410)
    restored = page(hpa("a", 9, maxReplicas=7), hpa("b", 9), version=9)
    script.on("GET", HPAS, page(hpa("a", 9), hpa("b", 9), version=9), restored)
    script.on("GET", HPAS + "?watch", expired, hangs)
    changes = []
    cache.subscribe(
        lambda key, old, new: changes.append((key.name, old and old.spec.max_replicas, new.spec.max_replicas))
    )
    running(cache.run())
    await until(lambda: script.count(HPAS + "?watch") == 2)
    assert changes == [("a", None, 3), ("b", None, 3), ("a", 3, 7)]


async def test_a_failing_subscriber_does_not_affect_the_cache_and_the_other_subscribers(script, client, running):
    """The bug is counted."""
    script.on("GET", HPAS, page(hpa("a", 1), hpa("odd", 2)))
    script.on("GET", HPAS + "?watch", streams(line("ADDED", hpa("b", 11)), then="hang"))
    bugs, changes = [], []
    cache = Cache(WatchScope(client, options=QUICK), HPA, bug=lambda: bugs.append(1))

    def fail(key, old, new):
        if key.name == "odd":
            raise ValueError("unexpected")

    cache.subscribe(fail)
    cache.subscribe(lambda key, old, new: changes.append(key.name))
    feeding = running(cache.run())
    await until(lambda: names(cache) == ["a", "b", "odd"])
    assert changes == ["a", "odd", "b"]
    assert bugs == [1]
    assert not feeding.done()


async def test_a_bug_of_a_subscriber_is_logged_once_for_each_cause_and_counted_each_time(script, client, running):
    script.on("GET", HPAS, page(*(hpa(name, 1) for name in ("a", "b", "c", "other"))))
    script.on("GET", HPAS + "?watch", hangs)
    bugs = []
    cache = Cache(WatchScope(client, options=QUICK), HPA, bug=lambda: bugs.append(1))

    def fail(key, old, new):
        if key.name == "other":
            raise KeyError("another cause")
        raise ValueError(key.name)

    cache.subscribe(fail)
    with structlog.testing.capture_logs() as logged:
        running(cache.run())
        await until(lambda: len(bugs) == 4)
    assert [line["object"] for line in logged if line["log_level"] == "error"] == ["n/a", "n/other"]


async def test_a_failure_of_the_index_ends_the_cache(script, client, monkeypatch):
    """Decisions based on an index that has missed a change would count the wrong pods."""
    script.on("GET", "/api/v1/pods", page({"metadata": {"name": "p", "namespace": "n", "labels": {"a": "b"}}}))
    cache = PodCache(WatchScope(client, options=QUICK))

    def fail(index, old, new):
        raise ValueError("unexpected")

    monkeypatch.setattr(Index, "replace", fail)
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(cache.run(), 60)
    assert isinstance(caught.value.exceptions[0], ValueError)


async def test_the_trouble_of_a_cache_names_the_missing_api(script, cache, running):
    """The server is older than autoscaling/v2; the cache syncs once it has been upgraded."""
    script.on("GET", HPAS, says(failure(404, "NotFound", "the server could not find the requested resource"), 404))
    running(cache.run())
    await until(lambda: cache.trouble is not None)
    assert cache.answered.is_set()
    assert not cache.synced.is_set()
    assert cache.trouble == (
        "horizontalpodautoscalers.autoscaling: this API server has no autoscaling/v2: hpad needs Kubernetes 1.23 or "
        "later (the server could not find the requested resource)"
    )
    script.replace("GET", HPAS, page(hpa("a", 1)))
    script.on("GET", HPAS + "?watch", hangs)
    await synced(cache)
    assert cache.trouble is None


async def test_an_unreadable_object_is_logged_once_for_each_cause(script, cache, running):
    """The object is received again with each of its changes and with each list."""
    bad = {**hpa("bad", 1), "spec": {"maxReplicas": "many"}}
    worse = {**hpa("bad", 1), "spec": {"maxReplicas": [3]}}
    changes = [line("MODIFIED", {**each, "metadata": {**each["metadata"], "resourceVersion": str(version)}})
               for version, each in enumerate([bad, bad, bad, worse, bad, worse, hpa("bad", 1)], 11)]  # fmt: skip
    script.on("GET", HPAS, page(bad, hpa("a", 1)))
    script.on("GET", HPAS + "?watch", streams(*changes, then="hang"))
    with structlog.testing.capture_logs() as logged:
        running(cache.run())
        await until(lambda: names(cache) == ["a", "bad"])
    lines = [line for line in logged if line["event"].startswith("object")]
    assert [(line["event"], line["name"], line.get("times")) for line in lines] == [
        ("object cannot be read", "bad", None),
        ("object cannot be read", "bad", None),
        ("object can be read again", "bad", 7),
    ]
    assert lines[0]["error"] != lines[1]["error"]
