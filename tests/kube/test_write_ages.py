"""How long ago the statuses were written that a list shows after the watch had left them out."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from support.kube_caches import HPAS, page
from support.left_out import THEIRS, hpa


async def ages(world, *items):
    """Returns the ages of the status writes that a list beside the watch shows of HPAs in `theirs`, by name."""
    await world.without_theirs()
    world.script.replace("GET", HPAS, page(*items, version=20))
    world.cache.keep({"ours", "theirs"})
    await asyncio.wait_for(world.cache.caught_up([THEIRS]), 10)
    assert world.caught_up == [world.noticed], "the ages are known before HPAs are gained"
    assert {key.namespace for key in world.noticed} <= {"theirs"}
    return {key.name: seconds for key, seconds in world.noticed.items()}


def at(seconds):
    """Returns a time so many seconds before the first one that the clock of these tests may show."""
    return (datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


async def test_a_list_tells_how_long_ago_statuses_were_written_by_the_newest_of_all(world):
    theirs = [hpa(str(ago), "theirs", version=15, written=at(10 + ago), manager="other") for ago in (0, 1, 30)]
    found = await ages(world, *theirs, hpa(version=17, written=at(10)))
    assert found == {"0": 0.0, "1": 0.0, "30": 28.0}, "two seconds less: times are cut off, servers have own clocks"


@pytest.mark.parametrize("own", ["2099-01-01T00:00:00Z", "9", "2026-01-01T00:00:00"])
async def test_no_single_time_makes_other_writes_seem_long_ago(world, clock, own):
    found = await ages(world, hpa("a", "theirs", version=15, written=at(12)), hpa(version=17, written=own))
    assert found["a"] <= (clock.now() - datetime.fromisoformat(at(12))).total_seconds()


@pytest.mark.parametrize("written", ["", "yesterday", "2026-01-01T00:00:00"])
async def test_a_write_whose_time_is_not_known_counts_as_one_of_this_moment(world, written):
    found = await ages(world, hpa("a", "theirs", version=15, written=written), hpa(version=17, written=at(10)))
    assert found == {"a": 0.0}


async def test_other_writes_than_those_of_the_status_do_not_count(world):
    spec = hpa("a", "theirs", version=15, written=at(20))
    spec["metadata"]["managedFields"].append({"manager": "kubectl", "operation": "Update", "time": at(10)})
    assert await ages(world, spec, hpa(version=17, written=at(10))) == {"a": 8.0}


async def test_an_hpa_without_a_status_was_never_written(world):
    assert await ages(world, {**hpa("a", "theirs", version=15), "status": {}}, hpa(written=at(10))) == {}
