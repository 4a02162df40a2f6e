"""Lists beside the watch, and what happens at the same time: changes that are read late, failures, other lists."""

import asyncio

import pytest
from support.kube_caches import HPAS, lists, page
from support.left_out import OURS, THEIRS, WATCH, WITHOUT_THEIRS, Feed, Gate, hpa
from support.scripted_server import failure, hangs, line, says, streams, until

from hpad.api.metadata import Key
from hpad.kube import exclusion

UNAVAILABLE = says(failure(503, "ServiceUnavailable", "later"), 503)
EXPIRED = failure(410, "Expired", "too old resource version")
LATER = page(hpa(), hpa(namespace="theirs", version=30, maximum=7), version=31)


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("read", [lambda cache: cache.get(THEIRS), lambda cache: cache.values()])
async def test_a_change_from_before_that_is_read_during_the_list_is_not_newer_than_the_list(world, read, deleted):
    feed = Feed()
    world.script.replace("GET", WATCH, feed, hangs)
    await world.start()
    feed.send("MODIFIED", hpa(namespace="theirs", version=11, maximum=5))
    await until(lambda: world.noticed)
    world.cache.keep({"ours"})
    await until(lambda: world.selectors[-1] == WITHOUT_THEIRS)
    listed = Gate(page(hpa(), version=31) if deleted else LATER)
    world.script.replace("GET", HPAS, listed)
    world.cache.keep({"ours", "theirs"})
    await until(lambda: lists(world.script) == 2)
    read(world.cache)
    listed.open.set()
    await asyncio.wait_for(world.cache.caught_up([THEIRS]), 10)
    found = world.cache.get(THEIRS)
    assert found is None if deleted else found.spec.max_replicas == 7


@pytest.mark.parametrize("pages", [1, 2])
async def test_a_change_that_is_unread_when_it_arrives_during_the_list_is_newer_than_the_list(world, pages):
    """It comes before or after the page that has the HPA."""
    feed = Feed()
    world.script.replace("GET", WATCH, hangs, hangs, feed)
    await world.without_theirs()
    items, more = (hpa(), hpa(namespace="theirs", version=12, written="2025-12-31T23:59:00Z")), []
    listed = Gate(page(*items, version=13) if pages == 1 else page(version=13))
    if pages == 2:
        more.append(page(*items, version=13, token="more"))
    world.script.replace("GET", HPAS, *more, listed)
    world.cache.keep({"ours", "theirs"})
    await until(lambda: lists(world.script) == 1 + pages)
    feed.send("MODIFIED", hpa(namespace="theirs", version=14, maximum=9))
    await until(lambda: world.noticed)
    listed.open.set()
    await asyncio.wait_for(world.cache.caught_up([THEIRS]), 10)
    assert world.cache.get(THEIRS).spec.max_replicas == 9
    assert world.noticed == {THEIRS: 0.0}, "the list shows an earlier write"


async def test_a_write_of_an_hpa_that_was_not_known_is_noticed(world):
    """The list has the HPA as it was before, or not at all; no subscriber could tell that its status has changed."""
    feed = Feed()
    world.script.replace("GET", WATCH, hangs, hangs, feed)
    await world.without_theirs()
    listed = Gate(page(hpa(), hpa(namespace="theirs"), version=13))
    world.script.replace("GET", HPAS, listed)
    world.cache.keep({"ours", "theirs"})
    await until(lambda: lists(world.script) == 2)
    feed.send("MODIFIED", hpa("late", "theirs", version=14))
    await until(lambda: Key("theirs", "late") in world.cache)
    listed.open.set()
    await asyncio.wait_for(world.cache.caught_up([THEIRS]), 10)
    assert world.noticed[Key("theirs", "late")] == 0.0


async def test_an_hpa_that_cannot_be_read_any_more_is_dropped(world):
    await world.without_theirs()
    world.script.replace("GET", HPAS, page(hpa(), hpa(namespace="theirs", version=19, maximum="many"), version=20))
    world.cache.keep({"ours", "theirs"})
    await asyncio.wait_for(world.cache.caught_up([THEIRS]), 10)
    assert world.cache.keys() == [OURS]


async def test_a_failure_is_over_once_the_reflector_has_listed_everything(world):
    feed = Feed()
    world.script.replace("GET", WATCH, hangs, hangs, feed, hangs)
    await world.without_theirs()
    world.script.replace("GET", HPAS, UNAVAILABLE)
    world.cache.keep({"ours", "theirs"})
    await until(lambda: world.cache.exclusion.failing)
    feed.lines.put_nowait(line("ERROR", EXPIRED))
    await asyncio.sleep(0.05)
    world.script.replace("GET", HPAS, LATER)
    await until(lambda: not world.lacks("theirs"))
    await until(lambda: world.cache.trouble is None)


async def test_the_failure_of_a_list_that_is_not_needed_any_more_is_none(world):
    feed = Feed()
    world.script.replace("GET", WATCH, hangs, hangs, feed, hangs)
    await world.without_theirs()
    late = Gate(UNAVAILABLE)
    world.script.replace("GET", HPAS, late, LATER)
    world.cache.keep({"ours", "theirs"})
    await until(lambda: lists(world.script) == 2)
    feed.lines.put_nowait(line("ERROR", EXPIRED))
    await until(lambda: not world.lacks("theirs"))
    late.open.set()
    await asyncio.sleep(0.1)
    assert world.cache.trouble is None


async def test_a_list_whose_pages_the_server_forgets_is_read_at_once(world):
    await world.without_theirs()
    first = page(hpa("gone", "theirs", version=15), version=18, token="more")
    world.script.replace("GET", HPAS, first, says(EXPIRED, 410), LATER)
    world.cache.keep({"ours", "theirs"})
    await asyncio.wait_for(world.cache.caught_up([THEIRS]), 10)
    assert sorted(world.cache.keys()) == [OURS, THEIRS]
    assert "limit" not in world.script.asked[-1][2]
    assert set(world.noticed) <= {THEIRS}


async def test_what_is_kept_may_change_while_somebody_waits_for_a_list(world, clock):
    await world.without_theirs()
    listed = Gate(LATER)
    world.script.replace("GET", HPAS, listed)
    clock.skipped += exclusion.FRESH
    look = asyncio.ensure_future(world.cache.shown())
    await until(lambda: lists(world.script) == 2)
    world.cache.keep({"ours", "new"})
    await asyncio.sleep(0.02)
    assert not look.done()
    listed.open.set()
    await asyncio.wait_for(look, 10)
    assert world.cache.get(THEIRS).spec.max_replicas == 7


async def test_a_look_during_a_list_of_the_reflector_asks_for_no_other(world, clock):
    feed = Feed()
    world.script.replace("GET", WATCH, hangs, feed, hangs)
    await world.without_theirs()
    listed = Gate(LATER)
    world.script.replace("GET", HPAS, listed)
    feed.lines.put_nowait(line("ERROR", EXPIRED))
    await until(lambda: lists(world.script) == 2)
    clock.skipped += exclusion.FRESH
    look = asyncio.ensure_future(world.cache.shown())
    await asyncio.sleep(0.02)
    listed.open.set()
    await asyncio.wait_for(look, 10)
    await asyncio.sleep(0.05)
    assert lists(world.script) == 2


@pytest.mark.parametrize(
    "refusal",
    [says(failure(429, "TooManyRequests", "later"), 429), says(EXPIRED, 410), streams(line("ERROR", EXPIRED))],
)
async def test_an_overloaded_server_or_an_expired_version_is_no_reason_to_give_the_selector_up(world, refusal):
    own = streams(line("MODIFIED", hpa(version=11)), then="hang")
    world.script.replace("GET", WATCH, hangs, UNAVAILABLE, refusal, refusal, refusal, own)
    await world.without_theirs()
    await until(lambda: len(world.selectors) == 6)
    assert set(world.selectors[1:]) == {WITHOUT_THEIRS}


async def test_a_selector_that_may_have_been_the_reason_of_failures_is_tried_again_later(world, clock):
    feed = Feed()
    world.script.replace("GET", WATCH, hangs, UNAVAILABLE, UNAVAILABLE, feed, hangs)
    await world.without_theirs()
    await until(lambda: len(world.selectors) == 4)
    assert world.selectors[-1] == ""
    clock.skipped += exclusion._SUSPECT
    feed.lines.put_nowait(b"")
    await until(lambda: len(world.selectors) == 5)
    assert world.selectors[-1] == WITHOUT_THEIRS


async def test_a_bug_of_a_callback_does_not_end_the_cache(world):
    def fails():
        raise RuntimeError("bug")

    world.cache.share(lambda key: key.namespace != "ours", world.noticed.__setitem__, fails)
    await world.without_theirs()
    world.script.replace("GET", HPAS, LATER)
    world.cache.keep({"ours", "theirs"})
    await until(lambda: world.cache.get(THEIRS).spec.max_replicas == 7)
    assert not world.lacks("theirs")
