"""Namespaces that the watch of HPAs leaves out: when, what is missing then, and when it is read again."""

import asyncio
from dataclasses import replace

import pytest
import structlog
from aiohttp import web
from support.kube_caches import HPAS, lists, page, synced
from support.scripted_server import QUICK, failure, hangs, line, says, streams, until

from hpad.api.metadata import Key
from hpad.kube import exclusion, hpa_bytes, paths
from hpad.kube.exclusion import Exclusion
from hpad.kube.hpa_cache import HpaCache
from hpad.kube.reflector import Kind
from hpad.kube.watch import WatchScope

WATCH = HPAS + "?watch"
KIND = Kind(paths.HPAS, hpa_bytes.decode, lambda hpa: hpa.metadata.resource_version)
OURS, THEIRS = Key("ours", "web"), Key("theirs", "web")


def hpa(name="web", namespace="ours", *, version=1, maximum=3, written="2026-01-01T00:00:30Z", writer="hpad"):
    entry = {"manager": writer, "operation": "Update", "subresource": "status", "time": written}
    meta = {"name": name, "namespace": namespace, "uid": "u", "resourceVersion": str(version)}
    return {"metadata": {**meta, "managedFields": [entry]}, "spec": {"maxReplicas": maximum}}


class World:
    """A cache of HPAs in the namespaces `ours` and `theirs`, whose watches hang, and what it calls back."""

    def __init__(self, client, script, running, *, least=1, namespaces=()):
        self.script = script
        scope = WatchScope(
            client, namespaces, replace(QUICK, shortest_watch=60, longest_watch=60, least_left_out=least)
        )
        self.cache = HpaCache(scope, KIND)
        self.noticed, self.caught_up = {}, 0
        self.cache.share(lambda key: key.namespace != "ours", self.noticed.__setitem__, self.caught)
        script.on("GET", HPAS, page(hpa(), hpa(namespace="theirs"), version=10))
        script.on("GET", WATCH, hangs)
        self.running = running

    def caught(self):
        self.caught_up += 1
        assert not self.cache.exclusion.misses_any

    @property
    def selectors(self):
        """The field selectors of the watches so far."""
        return [query.get("fieldSelector", "") for _, path, query in self.script.asked if path == WATCH]

    async def start(self):
        self.running(self.cache.run())
        await synced(self.cache)
        await until(lambda: self.selectors)

    async def without_theirs(self):
        await self.start()
        self.cache.keep({"ours"})
        await until(lambda: len(self.selectors) == 2)


@pytest.fixture
async def world(client, script, running):
    return World(client, script, running)


async def test_namespaces_of_others_are_left_out_of_the_watch_and_of_no_list(world):
    await world.without_theirs()
    assert world.selectors == ["", "metadata.namespace!=theirs"]
    versions = [query["resourceVersion"] for _, path, query in world.script.asked if path == WATCH]
    assert versions == ["10", "10"], "the second watch begins where the first one has ended"
    assert lists(world.script) == 1
    assert not any("fieldSelector" in query for _, path, query in world.script.asked if path == HPAS)
    assert world.cache.lacks("theirs")
    assert not world.cache.covers("theirs")
    assert world.cache.covers("ours")
    assert world.cache.waits("theirs") is None, "nobody needs it"
    assert sorted(world.cache.keys()) == [OURS, THEIRS]


async def test_nothing_is_left_out_for_a_few_hpas(client, script, running):
    world = World(client, script, running, least=2)
    await world.start()
    world.cache.keep({"ours"})
    await asyncio.sleep(0.05)
    assert world.selectors == [""]
    assert not world.cache.lacks("theirs")


async def test_a_watch_of_single_namespaces_leaves_out_none(client, script, running):
    world = World(client, script, running, namespaces=("ours", "theirs"))
    single = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"
    for namespace in ("ours", "theirs"):
        script.on("GET", single.format(namespace), page(hpa(namespace=namespace)))
        script.on("GET", single.format(namespace) + "?watch", hangs)
    running(world.cache.run())
    await synced(world.cache)
    world.cache.keep({"ours"})
    await asyncio.sleep(0.05)
    assert not any("fieldSelector" in query for _, _, query in script.asked)
    assert not world.cache.lacks("theirs")


async def test_a_namespace_that_is_wanted_again_lacks_its_changes_until_everything_is_listed(world):
    await world.without_theirs()
    opened = asyncio.Event()

    async def listed(request: web.Request) -> web.StreamResponse:
        await opened.wait()
        late = hpa("late", "theirs", version=18)
        return await page(hpa(), hpa(namespace="theirs", version=19, maximum=7), late, version=20)(request)

    world.script.replace("GET", HPAS, listed)
    world.cache.keep({"ours", "theirs"})
    await until(lambda: lists(world.script) == 2)
    assert world.cache.lacks("theirs")
    assert world.cache.waits("theirs") is not None
    caught_up = asyncio.ensure_future(world.cache.caught_up([THEIRS]))
    await asyncio.sleep(0.02)
    assert not caught_up.done()
    opened.set()
    await asyncio.wait_for(caught_up, 10)
    assert world.cache.get(THEIRS).spec.max_replicas == 7
    assert Key("theirs", "late") in world.cache
    assert (world.cache.lacks("theirs"), world.cache.waits("theirs"), world.caught_up) == (False, None, 1)
    await until(lambda: len(world.selectors) == 3)
    assert world.selectors[-1] == ""
    await asyncio.wait_for(world.cache.caught_up([OURS, THEIRS]), 1)


async def test_a_list_that_fails_is_repeated_and_nothing_counts_as_listed_meanwhile(world):
    await world.without_theirs()
    world.script.replace("GET", HPAS, says(failure(503, "ServiceUnavailable", "later"), 503))
    world.cache.keep({"ours", "theirs"})
    await until(lambda: lists(world.script) > 3)
    assert world.cache.lacks("theirs")
    assert "later" in world.cache.trouble
    world.script.replace("GET", HPAS, page(hpa(), version=20))
    await until(lambda: not world.cache.lacks("theirs"))
    assert THEIRS not in world.cache
    assert world.cache.trouble is None


async def test_a_list_tells_how_long_ago_statuses_were_written_by_the_newest_of_them(world):
    await world.without_theirs()
    times = {"a": "2026-01-01T00:00:20Z", "b": "2026-01-01T00:00:50Z", "c": "2026-01-01T00:00:51Z"}
    theirs = [hpa(name, "theirs", version=15, written=time, writer=name) for name, time in times.items()]
    odd = [hpa("d", "theirs", version=16, written="yesterday"), hpa("e", "theirs", version=16, written="")]
    ours = hpa("own", version=17, written="2026-01-01T00:00:51Z")
    world.script.replace("GET", HPAS, page(*theirs, *odd[1:], ours, version=20), page(*theirs, *odd, ours, version=21))
    world.cache.keep({"theirs"})
    await until(lambda: world.caught_up)
    named = {key.name: seconds for key, seconds in world.noticed.items()}
    assert named == {"a": 30.0, "b": 0.0, "c": 0.0}, "a second less, since both times are cut off"


async def test_hpas_that_are_left_out_are_listed_for_somebody_who_looks_but_not_each_time(world, clock):
    await world.without_theirs()
    world.script.replace("GET", HPAS, page(hpa(), hpa(namespace="theirs", version=19, maximum=7), version=20))
    await world.cache.shown()
    assert lists(world.script) == 1, "the last list is not old"
    clock.skipped += exclusion.FRESH
    await world.cache.shown([OURS])
    assert lists(world.script) == 1, "this one is not left out"
    await world.cache.shown([OURS, THEIRS])
    assert lists(world.script) == 2
    assert world.cache.get(THEIRS).spec.max_replicas == 7
    await until(lambda: len(world.selectors) == 3)
    assert world.selectors[-1] == "metadata.namespace!=theirs"
    await world.cache.shown()
    assert lists(world.script) == 2


async def test_old_hpas_are_shown_where_they_cannot_be_listed(world, clock, monkeypatch):
    monkeypatch.setattr("hpad.kube.hpa_cache._SHOWN_SECONDS", 0.05)
    await world.without_theirs()
    world.script.replace("GET", HPAS, hangs)
    clock.skipped += exclusion.FRESH
    await asyncio.wait_for(world.cache.shown(), 10)
    assert THEIRS in world.cache


async def test_what_is_left_out_is_listed_whenever_the_server_ends_the_watch(world, clock):
    async def ends(request: web.Request) -> web.StreamResponse:
        clock.skipped += 60
        return await streams(line("BOOKMARK", {"metadata": {"resourceVersion": "11"}}))(request)

    world.script.replace("GET", WATCH, hangs, ends, hangs)
    world.script.on("GET", HPAS, page(hpa(), version=20))
    await world.without_theirs()
    await until(lambda: lists(world.script) == 2)
    await until(lambda: THEIRS not in world.cache)


@pytest.mark.parametrize("status", [400, 414, 431])
async def test_a_server_that_refuses_the_selector_is_asked_without_it(world, status):
    world.script.replace("GET", WATCH, hangs, says(failure(status, "Invalid", "too long"), status), hangs)
    with structlog.testing.capture_logs() as logged:
        await world.without_theirs()
        await until(lambda: len(world.selectors) == 3)
    assert world.selectors == ["", "metadata.namespace!=theirs", ""]
    events = [each["event"] for each in logged]
    assert events.count("the server refuses to leave namespaces out of a watch") == 1
    assert world.cache.lacks("theirs"), "changes before this watch may be missing"
    world.cache.keep({"ours"})
    await asyncio.sleep(0.02)
    assert len(world.selectors) == 3


async def test_a_failure_that_has_nothing_to_do_with_the_selector_keeps_it(world):
    world.script.replace("GET", WATCH, hangs, says(failure(503, "ServiceUnavailable", "later"), 503), hangs)
    await world.without_theirs()
    await until(lambda: len(world.selectors) == 3)
    assert world.selectors[1:] == ["metadata.namespace!=theirs"] * 2


def left_out(exclusion):
    return [term.removeprefix("metadata.namespace!=") for term in exclusion.selector().split(",") if term]


async def test_the_namespaces_with_the_most_hpas_are_left_out_as_many_as_fit_into_an_address(clock):
    names = [f"a-rather-long-namespace-{number:04}" for number in range(1000)]
    keys = [Key(name, str(each)) for number, name in enumerate(names) for each in range(1 + number % 2)]
    exclusion = Exclusion(clock, lambda: keys, 1)
    assert exclusion.want({"ours"})
    chosen = left_out(exclusion)
    assert 50 < len(chosen) < 200
    assert all(names.index(name) % 2 for name in chosen)
    assert len(exclusion.selector()) < 6000


async def test_a_namespace_without_hpas_is_never_left_out(clock):
    keys = [Key("theirs", "web")]
    exclusion = Exclusion(clock, lambda: keys, 1)
    assert exclusion.want(())
    assert left_out(exclusion) == ["theirs"]
    keys.clear()
    exclusion.list_begins()
    exclusion.list_ends()
    assert left_out(exclusion) == []
    assert not exclusion.misses("theirs")


async def test_a_few_more_hpas_of_others_are_left_out_with_the_next_watch(clock):
    keys = [Key("theirs", str(number)) for number in range(5)]
    exclusion = Exclusion(clock, lambda: keys, 3)
    assert exclusion.want({"ours"})
    assert left_out(exclusion) == ["theirs"]
    keys += [Key("others", "1"), Key("others", "2")]
    assert not exclusion.want({"ours", "new"}), "not worth another request"
    keys.append(Key("others", "3"))
    assert exclusion.want({"ours"})
    assert left_out(exclusion) == ["others", "theirs"]


async def test_what_was_left_out_once_is_missed_until_a_list_although_it_is_watched_again(clock):
    exclusion = Exclusion(clock, lambda: [Key("theirs", "web")], 1)
    exclusion.want({"ours"})
    exclusion.selector()
    assert exclusion.want({"theirs"})
    assert exclusion.must_list
    assert exclusion.want({"ours", "more"}) is False, "it is not needed any more"
    assert not exclusion.must_list
    assert exclusion.misses("theirs")
    exclusion.want({"theirs"})
    exclusion.list_begins()
    assert exclusion.must_list
    exclusion.list_ends()
    assert not exclusion.must_list
