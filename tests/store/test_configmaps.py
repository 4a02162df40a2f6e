"""The ConfigMap storage backend over HTTP: other writers, damaged values, values that do not fit, refused writes."""

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
from hpad.settings.model import SHARD_BY, SHARD_BY_HPA
from hpad.store import configmaps

Rows = dict[Key, bytes]
Backends = Callable[..., Awaitable[configmaps.ConfigMaps]]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(kubelet=False, controllers=False) as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hpad"}})
        yield cluster


@pytest.fixture
async def backends(cluster: Cluster) -> AsyncIterator[Backends]:
    """Creates loaded backends, each with its own client."""
    async with contextlib.AsyncExitStack() as stack:

        async def backend(
            owns: Callable[[Key], bool] = lambda key: True,
            clock: SkippingClock | None = None,
            remaining: Callable[[], float | None] = lambda: None,
        ) -> configmaps.ConfigMaps:
            client = Client(ClusterConfig(cluster.url), clock or SkippingClock(), timeout=2.0)
            made = configmaps.ConfigMaps(await stack.enter_async_context(client), "hpad", "history", owns, remaining)
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
    config_map = cluster.get("configmaps", name, "hpad")
    return None if config_map is None else (config_map.get("binaryData") or {}).get(entry)


def put(cluster: Cluster, name: str, histories: str) -> None:
    """Writes the value as another client."""
    head = {"name": name, "namespace": "hpad"}
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "binaryData": {"histories": histories}})


def packed(content: Any) -> str:
    return base64.b64encode(zlib.compress(msgspec.msgpack.encode(content))).decode()


def writes(cluster: Cluster) -> int:
    return cluster.log.count("create", "configmaps") + cluster.log.count("update", "configmaps")


async def test_saved_records_are_loaded_by_the_next_backend(backends: Backends) -> None:
    one = await backends()
    assert await one.save(rows(5)) == {}
    assert await one.save({Key("shop", "web-2"): None, **rows(1, first=9)}) == {}
    expected = {**rows(5), **rows(1, first=9)}
    del expected[Key("shop", "web-2")]
    assert await found(await backends()) == expected


async def test_deleted_hpas_leave_nothing_behind(backends: Backends) -> None:
    """Neither one that had a record, nor one that was deleted before its first save."""
    one = await backends()
    assert await one.save(rows(2)) == {}
    unsaved = Key("shop", "web-9")
    one.group(unsaved)
    assert await one.save({**dict.fromkeys(rows(1)), unsaved: None}) == {}
    assert set(one._places) == set(rows(1, first=1))


async def test_a_save_writes_each_object_once(cluster: Cluster, backends: Backends) -> None:
    one = await backends()
    many = rows(2 * configmaps.HPAS + 1)
    assert await one.save(many) == {}
    assert writes(cluster) == 3
    assert await one.save(dict(list(many.items())[: configmaps.HPAS])) == {}
    assert writes(cluster) == 4
    assert await found(await backends()) == many
    assert [each["metadata"]["name"] for each in cluster.list("configmaps", "hpad")] == [
        "history-0",
        "history-1",
        "history-2",
    ]


def whose(keys: set[Key]) -> Callable[[Key], bool]:
    """Returns an `owns` that accepts these HPAs and all ConfigMaps."""
    return lambda key: key in keys or key.name.startswith("history-")


def assigned(me: str, *others: str, by: str = SHARD_BY_HPA) -> Callable[[Key], bool]:
    """Returns an `owns` that accepts the assignment of the member `me`."""
    unit = assignment.UNITS[by]
    return lambda key: assignment.first(unit(key), (me, *others)) == me


async def test_nothing_is_written_of_an_hpa_that_is_lost_before_the_request_is_handed_over(
    cluster: Cluster, backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leadership lease may end while the client gets credentials, or waits before it repeats a request."""
    keys = set(rows(2))
    one = await backends(whose(keys))
    head = one._client._head

    def lose(*arguments: Any) -> Any:
        keys.discard(Key("shop", "web-1"))
        return head(*arguments)

    monkeypatch.setattr(one._client, "_head", lose)
    assert await one.save(rows(2)) == {}
    assert await found(await backends()) == rows(1)
    written = writes(cluster)
    monkeypatch.setattr(one._client, "_head", lambda *arguments: keys.clear() or head(*arguments))
    assert await one.save(rows(1)) == {}
    assert writes(cluster) == written


async def test_a_save_ends_with_the_lease(cluster: Cluster, backends: Backends) -> None:
    one = await backends(remaining=lambda: 0.2)
    cluster.faults.add(method="POST", path="configmaps", delay=60.0)
    (why,) = set((await one.save(rows(2))).values())
    assert "before the permission for the write ended" in why
    assert value(cluster, "history-0") is None


async def test_nothing_is_written_without_a_lease(cluster: Cluster, backends: Backends) -> None:
    """By a standby, or a leader whose lease has ended before the save: it owns none of the HPAs any more."""
    await (await backends()).save(rows(2))
    one = await backends(lambda key: False, remaining=lambda: 0.0)
    before = writes(cluster)
    assert await one.save(rows(2)) == {}
    await one.quarantine(rows(1))
    assert writes(cluster) == before


@pytest.mark.parametrize("shard_by", SHARD_BY)
async def test_replicas_of_a_shard_group_write_separate_objects(
    cluster: Cluster, backends: Backends, shard_by: str
) -> None:
    """Replicas cannot conflict: a save writes each object once, for any number of replicas."""
    names, keys = ("a", "b", "c"), [Key(f"team-{n // 10}", f"web-{n}") for n in range(300)]
    sharing = {name: await backends(assigned(name, *names, by=shard_by)) for name in names}
    for turn in range(3):
        for name, backend in sharing.items():
            mine = {key: b"%d" % turn for key in keys if assigned(name, *names, by=shard_by)(key)}
            cluster.log.clear()
            assert await backend.save(mine) == {}
            if turn:
                assert cluster.log.count() <= len(mine) // configmaps.HPAS + 1
                assert {write.status for write in cluster.log.writes} == {200}
    assert await found(await backends()) == dict.fromkeys(keys, b"2")
    assert len(cluster.list("configmaps", "hpad")) <= 12


async def test_a_reassigned_hpa_keeps_its_record_and_the_old_copy_is_removed_later(
    cluster: Cluster, backends: Backends
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


async def test_records_that_another_replica_wrote_in_between_are_kept(cluster: Cluster, backends: Backends) -> None:
    ours, theirs = set(rows(3)), set(rows(3, first=3))
    one, other = await backends(whose(ours)), await backends(whose(theirs))
    assert await one.save(rows(3)) == {}
    assert await other.save(rows(3, first=3)) == {}
    newer = {key: b"newer" for key in rows(3)}
    assert await one.save(newer) == {}
    assert await found(await backends()) == {**newer, **rows(3, first=3)}
    assert [each["metadata"]["name"] for each in cluster.list("configmaps", "hpad")] == ["history-0"]


async def test_records_of_reassigned_hpas_are_not_overwritten(backends: Backends) -> None:
    """The HPA was reassigned after the last read."""
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


async def test_a_lasting_conflict_fails_the_save_and_loses_nothing(cluster: Cluster, backends: Backends) -> None:
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
async def test_a_refused_write_fails_the_save_and_the_next_save_succeeds(
    cluster: Cluster, backends: Backends, fault: Any
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
async def test_an_unreadable_object_is_reported_and_not_replaced(
    cluster: Cluster, backends: Backends, fault: Any
) -> None:
    one = await backends()
    assert await one.save(rows(2)) == {}
    cluster.faults.add(method="GET", path="history-0", times=None, **fault)
    read, trouble = await (await backends()).load()
    assert read == []
    assert trouble is not None
    cluster.faults.clear()
    assert await found(await backends()) == rows(2)


async def test_a_response_without_a_config_map_fails_the_save(cluster: Cluster, backends: Backends) -> None:
    one = await backends()
    assert await one.save(rows(2)) == {}
    cluster.faults.add(method="PUT", path="history-0", times=None, body='{"kind": "Table"}')
    failed = await one.save({key: b"newer" for key in rows(2)})
    assert "no ConfigMap" in next(iter(failed.values()))
    cluster.faults.clear()
    assert await one.save({key: b"newer" for key in rows(2)}) == {}
    assert set((await found(await backends())).values()) == {b"newer"}


async def test_an_object_deleted_by_another_client_is_created_again(cluster: Cluster, backends: Backends) -> None:
    """`emptied` reports once that the other records of the object are lost."""
    one = await backends()
    many = rows(configmaps.HPAS + 3)
    assert await one.save(many) == {}
    assert not one.emptied()
    cluster.delete("configmaps", "history-0", "hpad")
    last = Key("shop", f"web-{configmaps.HPAS}")
    assert last in await found(await backends()), "the objects after the deleted one are still found"
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
        pytest.param(packed([1, [["shop", "web"]]]), id="rows too short"),
        pytest.param(packed({"format": 1}), id="another type"),
        pytest.param(base64.b64encode(zlib.compress(b"\0" * (65 * configmaps.MOST_BYTES))).decode(), id="a bomb"),
    ],
)
async def test_a_damaged_value_is_kept_for_inspection(cluster: Cluster, backends: Backends, damage: str) -> None:
    put(cluster, "history-0", damage)
    one = await backends()
    assert await found(one) == {}
    assert one.emptied()
    assert await one.save(rows(2)) == {}
    assert value(cluster, "history-0", "damaged") == damage
    assert await found(await backends()) == rows(2)


async def test_the_beginning_of_a_large_damaged_value_is_kept(cluster: Cluster, backends: Backends) -> None:
    """The whole value beside a full one would exceed the size limit of an object."""
    damage = base64.b64encode(random.Random(1).randbytes(configmaps.MOST_BYTES)).decode()
    put(cluster, "history-0", damage)
    one = await backends()
    assert await one.save(rows(2)) == {}
    kept = value(cluster, "history-0", "damaged")
    assert kept is not None
    assert damage.startswith(kept)
    assert len(base64.b64decode(kept)) + configmaps.MOST_BYTES < 1 << 20


async def test_a_damaged_record_does_not_affect_the_others(cluster: Cluster, backends: Backends) -> None:
    one = await backends()
    assert await one.save(rows(3)) == {}
    before = value(cluster, "history-0")
    bad = Key("shop", "web-1")
    await one.quarantine([bad])
    assert value(cluster, "history-0", "damaged") == before
    expected = rows(3)
    del expected[bad]
    assert await found(await backends()) == expected


async def test_a_value_of_a_later_version_is_kept(cluster: Cluster, backends: Backends) -> None:
    """After a rollback hpad writes to another object and leaves an unknown format unchanged."""
    assert await (await backends()).save(rows(3)) == {}
    later = packed([2, {"whatever": "comes"}, "then"])
    put(cluster, "history-0", later)
    one = await backends()
    assert await found(one) == {}
    assert await one.save(rows(3)) == {}
    assert value(cluster, "history-0") == later
    assert value(cluster, "history-0", "damaged") is None
    assert await found(await backends()) == rows(3)


async def test_a_later_version_that_starts_to_write_is_not_overwritten(cluster: Cluster, backends: Backends) -> None:
    one = await backends()
    assert await one.save(rows(3)) == {}
    later = packed([2, []])
    put(cluster, "history-0", later)
    key = Key("shop", "web-1")
    assert set(await one.save({key: b"newer"})) == {key}
    assert one.emptied(), "all records must be saved again, to another object"
    assert await one.save({**rows(3), key: b"newer"}) == {}
    assert value(cluster, "history-0") == later
    assert await found(await backends()) == {**rows(3), key: b"newer"}


async def test_records_without_room_in_their_object_move_to_another(cluster: Cluster, backends: Backends) -> None:
    """Records grow past the size limit of an object: none is lost, and no object is too large."""
    one = await backends()
    assert await one.save(rows(configmaps.HPAS)) == {}
    large = rows(configmaps.HPAS, size=configmaps.MOST_BYTES // 20)
    waiting = dict(large)
    for _ in range(5):
        waiting = {key: large[key] for key in await one.save(waiting)}
    assert waiting == {}
    assert await found(await backends()) == large
    for config_map in cluster.list("configmaps", "hpad"):
        assert len(json.dumps(config_map)) < 1 << 20


async def test_growing_records_can_displace_another_which_is_saved_again(backends: Backends) -> None:
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
