"""Histories in ConfigMaps, over the wire: what others write, what is damaged, what does not fit, what is refused."""

import base64
import contextlib
import json
import random
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from support.scripted_server import SkippingClock

from hpad.api.metadata import Key
from hpad.election import assignment
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.client import Client
from hpad.lab.cluster import Cluster
from hpad.store import configmaps

Rows = dict[Key, bytes]
Shelves = Callable[..., Awaitable[configmaps.ConfigMaps]]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(kubelet=False, controllers=False) as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hpad"}})
        yield cluster


@pytest.fixture
async def backends(cluster: Cluster) -> AsyncIterator[Shelves]:
    """Shelves of as many hpads as the test wants, each with a client of its own, and loaded."""
    async with contextlib.AsyncExitStack() as stack:

        async def backend(
            owns: Callable[[Key], bool] = lambda key: True, clock: SkippingClock | None = None
        ) -> configmaps.ConfigMaps:
            client = Client(ClusterConfig(cluster.url), clock or SkippingClock(), timeout=2.0)
            made = configmaps.ConfigMaps(await stack.enter_async_context(client), "hpad", "history", owns)
            await made.load()
            return made

        yield backend


def rows(count: int, *, first: int = 0, size: int = 30) -> Rows:
    return {Key("shop", f"web-{n}"): random.Random(n).randbytes(size) for n in range(first, first + count)}


async def found(backend: configmaps.ConfigMaps) -> Rows:
    rows, trouble = await backend.load()
    assert trouble is None
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def value(cluster: Cluster, name: str, entry: str = "histories") -> str | None:
    held = cluster.get("configmaps", name, "hpad")
    return None if held is None else (held.get("binaryData") or {}).get(entry)


def put(cluster: Cluster, name: str, histories: str) -> None:
    """As somebody else writes it."""
    head = {"name": name, "namespace": "hpad"}
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "binaryData": {"histories": histories}})


def packed(content: Any) -> str:
    return base64.b64encode(zlib.compress(msgspec.msgpack.encode(content))).decode()


def writes(cluster: Cluster) -> int:
    return cluster.log.count("create", "configmaps") + cluster.log.count("update", "configmaps")


async def test_what_was_saved_is_there_for_whoever_comes_next(backends: Shelves) -> None:
    one = await backends()
    assert await one.save(rows(5)) == {}
    assert await one.save({Key("shop", "web-2"): None, **rows(1, first=9)}) == {}
    expected = {**rows(5), **rows(1, first=9)}
    del expected[Key("shop", "web-2")]
    assert await found(await backends()) == expected


async def test_a_save_is_one_write_an_object(cluster: Cluster, backends: Shelves) -> None:
    one = await backends()
    many = rows(2 * configmaps.HPAS + 1)
    assert await one.save(many) == {}
    assert writes(cluster) == 3
    assert await one.save(dict(list(many.items())[: configmaps.HPAS])) == {}
    assert writes(cluster) == 4
    assert await found(await backends()) == many
    assert [held["metadata"]["name"] for held in cluster.list("configmaps", "hpad")] == [
        "history-0",
        "history-1",
        "history-2",
    ]


def whose(keys: set[Key]) -> Callable[[Key], bool]:
    """The owner of these HPAs, and of every object."""
    return lambda key: key in keys or key.namespace == "hpad"


def assigned(me: str, *others: str) -> Callable[[Key], bool]:
    """The owner of a member's share."""
    return lambda key: assignment.first(key, (me, *others)) == me


async def test_replicas_that_share_the_hpas_have_objects_of_their_own(cluster: Cluster, backends: Shelves) -> None:
    """So that none is in another's way: a write an object and save, however many they are."""
    names = ("a", "b", "c")
    sharing = {name: await backends(assigned(name, *names)) for name in names}
    for turn in range(3):
        for name, backend in sharing.items():
            mine = {key: b"%d" % turn for key in rows(300) if assigned(name, *names)(key)}
            cluster.log.clear()
            assert await backend.save(mine) == {}
            if turn:
                assert cluster.log.count() <= len(mine) // configmaps.HPAS + 1
                assert {write.status for write in cluster.log.writes} == {200}
    assert await found(await backends()) == dict.fromkeys(rows(300), b"2")
    assert len(cluster.list("configmaps", "hpad")) <= 12


async def test_where_an_hpa_goes_its_record_is_found_and_the_old_one_goes_in_time(
    cluster: Cluster, backends: Shelves
) -> None:
    keys, clock = rows(100), SkippingClock()
    alone = await backends(assigned("a"))
    assert await alone.save(dict.fromkeys(keys, b"old")) == {}
    both = {name: await backends(assigned(name, "a", "b"), clock) for name in "ab"}
    for turn in range(3):
        for name, backend in both.items():
            assert await backend.save({key: b"new %d" % turn for key in keys if assigned(name, "a", "b")(key)}) == {}
            copies, trouble = await (await backends()).load()
            assert trouble is None
            assert {key for key, _ in copies} == keys.keys()
        clock.skipped += 300
    left, _ = await (await backends()).load()
    assert {key for key, record in left if record.startswith(b"new")} == keys.keys()
    assert [key for key, record in left if record == b"old"] == []


async def test_what_another_replica_wrote_in_between_stays(cluster: Cluster, backends: Shelves) -> None:
    ours, theirs = set(rows(3)), set(rows(3, first=3))
    one, other = await backends(whose(ours)), await backends(whose(theirs))
    assert await one.save(rows(3)) == {}
    assert await other.save(rows(3, first=3)) == {}
    newer = {key: b"newer" for key in rows(3)}
    assert await one.save(newer) == {}
    assert await found(await backends()) == {**newer, **rows(3, first=3)}
    assert [held["metadata"]["name"] for held in cluster.list("configmaps", "hpad")] == ["history-0"]


async def test_what_is_not_ours_any_more_is_not_written_over(backends: Shelves) -> None:
    """It went to another replica while our write was under way."""
    ours = set(rows(3))
    one, other = await backends(whose(ours)), await backends()
    assert await one.save(rows(3)) == {}
    await other.load()
    key = Key("shop", "web-1")
    assert await other.save({key: b"theirs"}) == {}
    ours.discard(key)
    assert await one.save({key: b"ours, and old", Key("shop", "web-0"): b"ours"}) == {}
    kept = await found(await backends())
    assert kept[key] == b"theirs"
    assert kept[Key("shop", "web-0")] == b"ours"


async def test_a_conflict_that_does_not_end_fails_the_save_and_is_no_loss(cluster: Cluster, backends: Shelves) -> None:
    one = await backends()
    assert await one.save(rows(2)) == {}
    cluster.faults.add(method="PUT", path="history-0", times=None, status=409)
    failed = await one.save({key: b"newer" for key in rows(2)})
    assert set(failed) == set(rows(2))
    cluster.faults.clear()
    assert await found(await backends()) == rows(2)
    assert await one.save({key: b"newer" for key in rows(2)}) == {}
    assert set((await found(await backends())).values()) == {b"newer"}


@pytest.mark.parametrize("fault", [{"status": 403}, {"status": 500}, {"status": 503}, {"reset": True}])
async def test_a_refusal_fails_the_save_and_the_next_one_makes_up_for_it(
    cluster: Cluster, backends: Shelves, fault: Any
) -> None:
    one = await backends()
    assert await one.save(rows(2)) == {}
    cluster.faults.add(method="PUT", path="history-0", times=None, **fault)
    failed = await one.save({key: b"newer" for key in rows(2)})
    assert set(failed) == set(rows(2))
    assert all(why.startswith("ConfigMaps hpad/history-*: ") for why in failed.values())
    cluster.faults.clear()
    assert await one.save({key: b"newer" for key in rows(2)}) == {}
    assert set((await found(await backends())).values()) == {b"newer"}


@pytest.mark.parametrize("fault", [{"status": 403}, {"status": 500}, {"reset": True}, {"body": "[]"}, {"body": "{"}])
async def test_what_cannot_be_read_is_trouble_and_makes_nothing_new(
    cluster: Cluster, backends: Shelves, fault: Any
) -> None:
    one = await backends()
    assert await one.save(rows(2)) == {}
    cluster.faults.add(method="GET", path="history-0", times=None, **fault)
    read, trouble = await (await backends()).load()
    assert read == []
    assert trouble is not None
    cluster.faults.clear()
    assert await found(await backends()) == rows(2)


async def test_an_answer_that_is_no_config_map_fails_the_save(cluster: Cluster, backends: Shelves) -> None:
    one = await backends()
    assert await one.save(rows(2)) == {}
    cluster.faults.add(method="PUT", path="history-0", times=None, body='{"kind": "Table"}')
    failed = await one.save({key: b"newer" for key in rows(2)})
    assert "no ConfigMap" in next(iter(failed.values()))
    cluster.faults.clear()
    assert await one.save({key: b"newer" for key in rows(2)}) == {}
    assert set((await found(await backends())).values()) == {b"newer"}


async def test_an_object_deleted_behind_our_back_is_made_anew(cluster: Cluster, backends: Shelves) -> None:
    """And whoever remembers is told that what else was in it is gone."""
    one = await backends()
    many = rows(configmaps.HPAS + 3)
    assert await one.save(many) == {}
    assert not one.emptied()
    cluster.delete("configmaps", "history-0", "hpad")
    last = Key("shop", f"web-{configmaps.HPAS}")
    assert last in await found(await backends()), "the objects after it are found all the same"
    first = Key("shop", "web-0")
    assert await one.save({first: b"newer"}) == {}
    assert one.emptied()
    assert not one.emptied()
    assert await one.save({**many, first: b"newer"}) == {}
    assert await found(await backends()) == {**many, first: b"newer"}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("AAAA", id="not compressed"),
        pytest.param(base64.b64encode(zlib.compress(b"x" * 100)[:-5]).decode(), id="cut short"),
        pytest.param(packed([1, [["shop", "web"]]]), id="rows that are too short"),
        pytest.param(packed({"format": 1}), id="of another shape"),
        pytest.param(base64.b64encode(zlib.compress(b"\0" * (65 * configmaps.MOST_BYTES))).decode(), id="a bomb"),
    ],
)
async def test_a_damaged_value_is_set_aside_for_people(cluster: Cluster, backends: Shelves, damage: str) -> None:
    put(cluster, "history-0", damage)
    one = await backends()
    assert await found(one) == {}
    assert one.emptied()
    assert await one.save(rows(2)) == {}
    assert value(cluster, "history-0", "damaged") == damage
    assert await found(await backends()) == rows(2)


async def test_of_a_large_damaged_value_the_beginning_is_kept(cluster: Cluster, backends: Shelves) -> None:
    """The whole of it and a full value beside it would be more than an object may have."""
    damage = base64.b64encode(random.Random(1).randbytes(configmaps.MOST_BYTES)).decode()
    put(cluster, "history-0", damage)
    one = await backends()
    assert await one.save(rows(2)) == {}
    kept = value(cluster, "history-0", "damaged")
    assert kept is not None
    assert damage.startswith(kept)
    assert len(base64.b64decode(kept)) + configmaps.MOST_BYTES < 1 << 20


async def test_a_damaged_record_takes_no_other_with_it(cluster: Cluster, backends: Shelves) -> None:
    one = await backends()
    assert await one.save(rows(3)) == {}
    before = value(cluster, "history-0")
    bad = Key("shop", "web-1")
    await one.quarantine([bad])
    assert value(cluster, "history-0", "damaged") == before
    expected = rows(3)
    del expected[bad]
    assert await found(await backends()) == expected


async def test_what_a_later_version_wrote_is_left_for_it(cluster: Cluster, backends: Shelves) -> None:
    """hpad is rolled back: it remembers elsewhere, and touches nothing that it does not understand."""
    assert await (await backends()).save(rows(3)) == {}
    later = packed([2, {"whatever": "comes"}, "then"])
    put(cluster, "history-0", later)
    one = await backends()
    assert await found(one) == {}
    assert await one.save(rows(3)) == {}
    assert value(cluster, "history-0") == later
    assert value(cluster, "history-0", "damaged") is None
    assert await found(await backends()) == rows(3)


async def test_a_later_version_that_takes_over_while_we_run_is_left_alone(cluster: Cluster, backends: Shelves) -> None:
    one = await backends()
    assert await one.save(rows(3)) == {}
    later = packed([2, []])
    put(cluster, "history-0", later)
    key = Key("shop", "web-1")
    assert set(await one.save({key: b"newer"})) == {key}
    assert one.emptied(), "all of them are to be saved, elsewhere"
    assert await one.save({**rows(3), key: b"newer"}) == {}
    assert value(cluster, "history-0") == later
    assert await found(await backends()) == {**rows(3), key: b"newer"}


async def test_what_finds_no_room_in_its_object_moves(cluster: Cluster, backends: Shelves) -> None:
    """Records that grow past what an object may hold: none is lost on the way, and no object is too large."""
    one = await backends()
    assert await one.save(rows(configmaps.HPAS)) == {}
    large = rows(configmaps.HPAS, size=configmaps.MOST_BYTES // 20)
    waiting = dict(large)
    for _ in range(5):
        waiting = {key: large[key] for key in await one.save(waiting)}
    assert waiting == {}
    assert await found(await backends()) == large
    for held in cluster.list("configmaps", "hpad"):
        assert len(json.dumps(held)) < 1 << 20


async def test_records_that_grow_can_push_out_another_which_is_then_saved_anew(backends: Shelves) -> None:
    one = await backends()
    (large,) = rows(1, size=200_000).items()
    crowd = rows(configmaps.HPAS - 1, first=10)
    assert await one.save(dict([large])) == {}
    assert await one.save(crowd) == {}
    assert {one.group(key) for key in crowd} == {one.group(large[0])}
    crowd = rows(configmaps.HPAS - 1, first=10, size=9000)
    assert await one.save(crowd) == {}
    assert one.emptied()
    assert await one.save({**crowd, large[0]: large[1]}) == {}
    assert await found(await backends()) == {**crowd, large[0]: large[1]}
