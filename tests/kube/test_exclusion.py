"""Namespaces that the watch of HPAs leaves out: when, what is missing then, and when it is read again."""

import asyncio

import pytest
import structlog
from support.kube_caches import HPAS, lists, page, synced
from support.left_out import OURS, THEIRS, WATCH, WITHOUT_THEIRS, Feed, Gate, World, hpa
from support.scripted_server import failure, hangs, line, resets, says, streams, until

from hpad.api.metadata import Key
from hpad.kube import exclusion

UNAVAILABLE = says(failure(503, "ServiceUnavailable", "later"), 503)


async def test_namespaces_of_others_are_left_out_of_the_watch(world):
    await world.without_theirs()
    assert world.selectors == ["", WITHOUT_THEIRS]
    versions = [query["resourceVersion"] for _, path, query in world.script.asked if path == WATCH]
    assert versions == ["10", "10"], "the second watch begins where the first one has ended"
    assert lists(world.script) == 1
    assert world.lacks("theirs")
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
    assert not world.lacks("theirs")


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
    assert not world.lacks("theirs")


async def test_the_watch_begins_anew_once_for_changes_at_the_same_time(world):
    await world.start()
    for wanted in ({"ours"}, {"ours", "theirs"}, {"ours"}):
        world.cache.keep(wanted)
    await until(lambda: len(world.selectors) == 2)
    await asyncio.sleep(0.05)
    assert world.selectors == ["", WITHOUT_THEIRS]


async def test_a_namespace_that_is_wanted_again_lacks_its_changes_until_everything_is_listed(world):
    await world.without_theirs()
    late = hpa("late", "theirs", version=18)
    listed = Gate(page(hpa(), hpa(namespace="theirs", version=19, maximum=7), late, version=20))
    world.script.replace("GET", HPAS, listed)
    world.cache.keep({"ours", "theirs"})
    await until(lambda: lists(world.script) == 2)
    await until(lambda: world.selectors[-1] == "")  # the watch goes on, and includes it before the list is answered
    assert world.lacks("theirs")
    assert world.cache.waits("theirs") is not None
    caught_up = asyncio.ensure_future(world.cache.caught_up([OURS, THEIRS]))
    await asyncio.sleep(0.02)
    assert not caught_up.done()
    listed.open.set()
    await asyncio.wait_for(caught_up, 10)
    assert world.cache.get(THEIRS).spec.max_replicas == 7
    assert Key("theirs", "late") in world.cache
    assert (world.lacks("theirs"), world.cache.waits("theirs"), len(world.caught_up)) == (False, None, 1)
    await asyncio.wait_for(world.cache.caught_up([OURS, THEIRS]), 1)
    assert len(world.selectors) == 3


async def test_what_the_watch_reports_during_the_list_is_not_replaced_by_older_objects_of_the_list(world):
    """The list was read before `web` was edited, `gone` deleted and `new` created; `old` is only in the list."""
    gone = hpa("gone", "theirs")
    world.script.replace("GET", HPAS, page(hpa(), hpa(namespace="theirs"), gone, version=10))
    feed = Feed()
    world.script.replace("GET", WATCH, hangs, hangs, feed)
    await world.without_theirs()
    listed = Gate(page(hpa(), hpa(namespace="theirs"), gone, hpa("old", "theirs", version=11), version=12))
    world.script.replace("GET", HPAS, listed)
    world.cache.keep({"ours", "theirs"})
    await until(lambda: lists(world.script) == 2)
    feed.send("MODIFIED", hpa(namespace="theirs", version=13, maximum=8))
    feed.send("DELETED", hpa("gone", "theirs", version=14))
    feed.send("ADDED", hpa("new", "theirs", version=15))
    await until(lambda: Key("theirs", "new") in world.cache)
    listed.open.set()
    await asyncio.wait_for(world.cache.caught_up([THEIRS]), 10)
    assert sorted(key.name for key in world.cache.keys("theirs")) == ["new", "old", "web"]
    assert world.cache.get(THEIRS).spec.max_replicas == 8


async def test_hpas_that_were_deleted_meanwhile_are_gone_after_the_list_and_others_stay(world):
    await world.without_theirs()
    world.script.replace("GET", HPAS, page(version=20))
    world.cache.keep({"ours", "theirs"})
    await asyncio.wait_for(world.cache.caught_up([THEIRS]), 10)
    assert world.cache.keys() == [OURS], "the watch has not reported its deletion"


async def test_the_watch_goes_on_while_lists_fail(world, clock):
    feed = Feed()
    world.script.replace("GET", WATCH, hangs, hangs, feed)
    await world.without_theirs()
    world.script.replace("GET", HPAS, UNAVAILABLE)
    world.cache.keep({"ours", "theirs"})
    await until(lambda: lists(world.script) > 3)
    assert world.lacks("theirs")
    assert "later" in world.cache.trouble
    feed.send("MODIFIED", hpa(version=21, maximum=9))
    await until(lambda: world.cache.get(OURS).spec.max_replicas == 9)
    clock.skipped += exclusion.FRESH
    await asyncio.wait_for(world.cache.shown(), 0.5)
    world.script.replace("GET", HPAS, page(hpa(version=21), version=22))
    await until(lambda: not world.lacks("theirs"))
    assert THEIRS not in world.cache
    await until(lambda: world.cache.trouble is None)


async def test_a_namespace_that_is_lost_again_delays_no_other(world):
    """Two namespaces are gained, and one of them is lost during the list."""
    world.script.replace("GET", HPAS, page(hpa(), hpa(namespace="theirs"), hpa(namespace="more"), version=10))
    await world.start()
    world.cache.keep({"ours"})
    await until(lambda: len(world.selectors) == 2)
    listed = Gate(page(hpa(), hpa(namespace="theirs"), hpa(namespace="more"), version=12))
    world.script.replace("GET", HPAS, listed)
    world.cache.keep({"ours", "theirs", "more"})
    caught_up = asyncio.ensure_future(world.cache.caught_up([THEIRS, Key("more", "web")]))
    await until(lambda: lists(world.script) == 2)
    world.cache.keep({"ours", "more"})
    await until(lambda: world.selectors[-1] == WITHOUT_THEIRS)
    listed.open.set()
    await asyncio.wait_for(caught_up, 10)
    assert world.lacks("theirs")
    assert not world.lacks("more")


async def test_the_time_for_which_a_namespace_waits_counts_from_when_it_was_wanted(world, clock):
    await world.without_theirs()
    world.script.replace("GET", HPAS, hangs)
    world.cache.keep({"ours", "theirs"})
    clock.skipped += 20
    world.cache.keep({"ours", "theirs", "more"})
    assert 20 <= world.cache.waits("theirs") < 30
    world.cache.keep({"ours"})
    assert world.cache.waits("theirs") is None


async def test_hpas_that_are_left_out_are_listed_for_somebody_who_looks_but_not_each_time(world, clock):
    await world.without_theirs()
    world.script.replace("GET", HPAS, page(hpa(), hpa(namespace="theirs", version=19, maximum=7), version=20))
    await world.cache.shown()
    assert lists(world.script) == 1, "the last list is not old"
    clock.skipped += exclusion.FRESH
    await world.cache.shown([OURS])
    assert lists(world.script) == 1, "this one is not left out"
    await asyncio.gather(*(world.cache.shown([OURS, THEIRS]) for _ in range(20)))
    assert lists(world.script) == 2
    assert world.cache.get(THEIRS).spec.max_replicas == 7
    await world.cache.shown()
    await asyncio.sleep(0.05)
    assert lists(world.script) == 2
    assert world.selectors == ["", WITHOUT_THEIRS], "the watch has gone on"
    assert world.lacks("theirs"), "later changes may be missing"
    assert world.caught_up == []


async def test_a_look_during_a_list_waits_for_it_and_asks_for_no_other(world, clock):
    await world.without_theirs()
    listed = Gate(page(hpa(), hpa(namespace="theirs", version=19, maximum=7), version=20))
    world.script.replace("GET", HPAS, listed)
    clock.skipped += exclusion.FRESH
    looks = [asyncio.ensure_future(world.cache.shown())]
    await until(lambda: lists(world.script) == 2)
    looks += [asyncio.ensure_future(world.cache.shown()) for _ in range(20)]
    await asyncio.sleep(0.02)
    assert not any(look.done() for look in looks)
    listed.open.set()
    await asyncio.wait_for(asyncio.gather(*looks), 10)
    await asyncio.sleep(0.05)
    assert lists(world.script) == 2


async def test_old_hpas_are_shown_where_they_cannot_be_listed(world, clock, monkeypatch):
    monkeypatch.setattr("hpad.kube.hpa_cache._SHOWN_SECONDS", 0.05)
    await world.without_theirs()
    world.script.replace("GET", HPAS, hangs)
    clock.skipped += exclusion.FRESH
    await asyncio.wait_for(world.cache.shown(), 10)
    assert THEIRS in world.cache


async def test_nobody_waits_where_nothing_is_left_out(world, clock):
    await world.start()
    clock.skipped += exclusion.FRESH
    await asyncio.wait_for(world.cache.shown(), 1)
    await asyncio.wait_for(world.cache.caught_up([THEIRS]), 1)
    assert lists(world.script) == 1


async def test_what_is_left_out_is_listed_from_time_to_time(world, clock, monkeypatch):
    monkeypatch.setattr(exclusion, "_LOOK", 0.01)
    world.script.on("GET", HPAS, page(hpa(), version=20))
    await world.without_theirs()
    await asyncio.sleep(0.1)
    assert lists(world.script) == 1
    clock.skipped += exclusion.LONGEST
    await until(lambda: lists(world.script) == 2)
    await until(lambda: THEIRS not in world.cache)
    await until(lambda: len(world.selectors) == 3)
    assert world.selectors[-1] == "", "a namespace without HPAs is not left out"


async def test_a_list_of_the_reflector_ends_the_one_beside_the_watch(world):
    feed = Feed()
    world.script.replace("GET", WATCH, hangs, hangs, feed, hangs)
    await world.without_theirs()
    beside = Gate(page(hpa(), hpa("stale", "theirs", version=11), version=12))
    world.script.replace("GET", HPAS, beside, page(hpa(), hpa(namespace="theirs", version=30), version=31))
    world.cache.keep({"ours", "theirs"})
    await until(lambda: lists(world.script) == 2)
    feed.lines.put_nowait(line("ERROR", failure(410, "Expired", "too old resource version")))
    await until(lambda: not world.lacks("theirs"))
    assert len(world.caught_up) == 1
    beside.open.set()
    await asyncio.sleep(0.05)
    assert sorted(world.cache.keys()) == [OURS, THEIRS]
    assert len(world.caught_up) == 1


async def test_what_is_kept_may_change_during_a_list_of_the_reflector(world):
    feed = Feed()
    world.script.replace("GET", WATCH, hangs, feed, hangs)
    await world.without_theirs()
    listed = Gate(page(hpa(), hpa(namespace="theirs", version=30), version=31))
    world.script.replace("GET", HPAS, listed)
    feed.lines.put_nowait(line("ERROR", failure(410, "Expired", "too old resource version")))
    await until(lambda: lists(world.script) == 2)
    world.cache.keep({"ours", "theirs"})
    world.cache.keep({"theirs"})
    listed.open.set()
    await until(lambda: world.selectors[-1] == "metadata.namespace!=ours")
    assert (world.lacks("ours"), world.lacks("theirs")) == (True, False)
    assert lists(world.script) == 2


async def test_a_list_for_somebody_who_looked_is_repeated_until_it_succeeds(world, clock):
    await world.without_theirs()
    world.script.replace("GET", HPAS, UNAVAILABLE)
    clock.skipped += exclusion.FRESH
    await asyncio.wait_for(world.cache.shown(), 1)
    await until(lambda: lists(world.script) > 3)
    world.script.replace("GET", HPAS, page(hpa(), hpa(namespace="theirs", version=19, maximum=7), version=20))
    await until(lambda: world.cache.get(THEIRS).spec.max_replicas == 7)


@pytest.mark.parametrize("status", [400, 413, 414, 431])
async def test_a_server_that_refuses_the_selector_is_asked_without_it(world, status):
    world.script.replace("GET", WATCH, hangs, says(failure(status, "Invalid", "too long"), status), hangs)
    with structlog.testing.capture_logs() as logged:
        await world.without_theirs()
        await until(lambda: len(world.selectors) == 3)
    assert world.selectors == ["", WITHOUT_THEIRS, ""]
    events = [each["event"] for each in logged]
    assert events.count("watches that leave namespaces out fail; the next ones have everything") == 1
    world.cache.keep({"theirs"})
    await asyncio.wait_for(world.cache.caught_up([THEIRS]), 10)
    await asyncio.sleep(0.02)
    assert len(world.selectors) == 3, "changes before this watch were missing, and were listed"


@pytest.mark.parametrize("answer", [resets, UNAVAILABLE, says(failure(403, "Forbidden", "no"), 403)])
async def test_a_selector_with_which_no_watch_is_ever_answered_is_given_up(world, answer):
    async def without_selector(request):
        return await (answer if "fieldSelector" in request.query else hangs)(request)

    world.script.replace("GET", WATCH, without_selector)
    await world.without_theirs()
    await until(lambda: world.selectors[-1] == "")
    assert 2 <= world.selectors.count(WITHOUT_THEIRS) <= 4, "the client repeats a request whose connection breaks"
    await asyncio.sleep(0.05)
    assert world.selectors[-1] == ""


async def test_later_failures_do_not_concern_a_selector_that_was_answered_before(world):
    own = streams(line("MODIFIED", hpa(version=11)), then="reset")
    world.script.replace("GET", WATCH, hangs, own, UNAVAILABLE, UNAVAILABLE, resets, UNAVAILABLE, hangs)
    await world.without_theirs()
    await until(lambda: len(world.selectors) == 7)
    assert set(world.selectors[1:]) == {WITHOUT_THEIRS}


async def test_the_namespaces_with_the_most_hpas_are_left_out_as_many_as_fit_into_an_address(world):
    names = [f"a-rather-long-namespace-{number:04}" for number in range(1000)]
    items = [hpa(str(each), name) for number, name in enumerate(names) for each in range(1 + number % 2)]
    world.script.replace("GET", HPAS, page(*items, version=10))
    await world.start()
    world.cache.keep({"ours"})
    await until(lambda: len(world.selectors) == 2)
    chosen = [term.removeprefix("metadata.namespace!=") for term in world.selectors[-1].split(",")]
    assert 50 < len(chosen) < 200
    assert all(names.index(name) % 2 for name in chosen)
    assert len(world.selectors[-1]) < 6000


async def test_a_few_more_hpas_of_others_are_left_out_with_the_next_watch(client, script, running):
    world = World(client, script, running, least=3)
    feed = Feed()
    script.replace("GET", HPAS, page(hpa(), *(hpa(str(each), "theirs") for each in range(3)), version=10))
    script.replace("GET", WATCH, hangs, feed, hangs)
    await world.without_theirs()
    for number in range(2):
        feed.send("ADDED", hpa(str(number), "others", version=11 + number))
    await until(lambda: len(world.cache.keys("others")) == 2)
    world.cache.keep({"ours", "new"})
    await asyncio.sleep(0.05)
    assert len(world.selectors) == 2, "not worth another request"
    feed.send("ADDED", hpa("2", "others", version=13))
    await until(lambda: len(world.cache.keys("others")) == 3)
    world.cache.keep({"ours"})
    await until(lambda: len(world.selectors) == 3)
    assert world.selectors[-1] == "metadata.namespace!=others,metadata.namespace!=theirs"
