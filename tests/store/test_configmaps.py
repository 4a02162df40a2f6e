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

from hpad.api.metadata import AUTOSCALER_KEY, Key
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.client import Allowed, Client, NotAllowed
from hpad.lab.cluster import Cluster
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

        async def backend(allowed: Allowed = lambda: None) -> configmaps.ConfigMaps:
            client = Client(ClusterConfig(cluster.url), SkippingClock(), timeout=60.0)
            made = configmaps.ConfigMaps(await stack.enter_async_context(client), "hpad", "history", allowed)
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
    beside = {Key("shop", "web-2", AUTOSCALER_KEY): b"an Autoscaler of the name of an HPA"}
    assert await one.save({**rows(5), **beside}) == {}
    assert await one.save({Key("shop", "web-2"): None, **rows(1, first=9)}) == {}
    expected = {**rows(5), **rows(1, first=9), **beside}
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


def refused() -> None:
    raise NotAllowed


async def test_a_save_ends_with_the_lease(cluster: Cluster, backends: Backends) -> None:
    one = await backends(lambda: 0.2)
    cluster.faults.add(method="POST", path="configmaps", delay=60.0)
    (why,) = set((await one.save(rows(2))).values())
    assert "before the permission for the write ended" in why
    assert value(cluster, "history-0") is None


async def test_nothing_is_written_without_a_lease(cluster: Cluster, backends: Backends) -> None:
    """By a standby, or a leader whose lease has ended before the save."""
    await (await backends()).save(rows(2))
    one = await backends(refused)
    before = writes(cluster)
    assert await one.save(rows(2)) == {}
    await one.quarantine(rows(1))
    assert writes(cluster) == before


async def test_copies_of_a_record_in_several_objects_become_one(cluster: Cluster, backends: Backends) -> None:
    """Replicas of an earlier version wrote separate objects, and left the records of HPAs that they lost."""
    for name in ("history-0", "history-1"):
        records = [(key.namespace, key.name, record) for key, record in rows(3).items()]
        put(cluster, name, packed([configmaps.FORMAT, records]))
    one = await backends()
    newer = {key: b"newer" for key in rows(3)}
    assert await one.save(newer) == {}
    assert await one.save(rows(configmaps.HPAS, first=3)) == {}
    assert await found(await backends()) == {**newer, **rows(configmaps.HPAS, first=3)}


async def test_records_that_another_replica_wrote_in_between_are_kept(cluster: Cluster, backends: Backends) -> None:
    one, other = await backends(), await backends()
    assert await one.save(rows(3)) == {}
    assert await other.save(rows(3, first=3)) == {}
    newer = {key: b"newer" for key in rows(3)}
    assert await one.save(newer) == {}
    assert await found(await backends()) == {**newer, **rows(3, first=3)}
    assert [each["metadata"]["name"] for each in cluster.list("configmaps", "hpad")] == ["history-0"]


async def test_records_of_a_new_leader_are_not_overwritten(backends: Backends) -> None:
    """Another replica has led since the last read, which the conflict shows."""
    permissions = iter((None, None))

    def allowed() -> None:
        if next(permissions, NotAllowed) is NotAllowed:
            raise NotAllowed

    one, other = await backends(allowed), await backends()
    assert await one.save(rows(3)) == {}
    await other.load()
    key = Key("shop", "web-1")
    assert await other.save({key: b"theirs"}) == {}
    assert await one.save({key: b"ours, and old"}) == {}
    assert (await found(await backends()))[key] == b"theirs"


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
