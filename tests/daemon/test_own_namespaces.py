"""The namespaces that a member of a shard group has its cluster keep."""

from types import SimpleNamespace
from typing import Any

import pytest
from support.controller import Source, hpa

from hpad.api.metadata import Key
from hpad.daemon.namespaces import OwnNamespaces


class World:
    """A member that expects `mine`, with HPAs in some namespaces; the watch of HPAs leaves `missed` out."""

    def __init__(self, *namespaces: str, mine: tuple[str, ...], missed: tuple[str, ...] = ()) -> None:
        self.kept: list[set[str]] = []
        self.source = Source(*(hpa("web", namespace=each) for each in namespaces))
        hpas = SimpleNamespace(exclusion=SimpleNamespace(missed=set(missed)))
        cluster: Any = SimpleNamespace(hpas=hpas, keep=self.kept.append)
        self.callbacks: list[Any] = []
        self.shards: Any = SimpleNamespace(
            expects=lambda namespace: namespace in mine, leading=True, subscribe=self.callbacks.append
        )
        OwnNamespaces(self.source, self.shards, cluster)

    def reassigned(self) -> None:
        for callback in self.callbacks:
            callback()


@pytest.fixture
async def world() -> World:
    return World("ours", "theirs", mine=("ours", "new"))


async def test_the_expected_namespaces_with_hpas_are_kept(world: World) -> None:
    world.reassigned()
    world.reassigned()
    assert world.kept == [{"ours"}]
    world.source.put(hpa("web", namespace="new"))
    assert world.kept[1:] == [{"ours", "new"}]
    world.source._found.pop(Key("ours", "web"))
    for callback in world.source._callbacks:
        callback(Key("ours", "web"), hpa("web", namespace="ours"), None)
    assert world.kept[2:] == [{"new"}]


async def test_a_member_without_a_namespace_keeps_none() -> None:
    world = World("theirs", mine=())
    world.shards.leading = False
    world.reassigned()
    assert world.kept == [], "this process may be a member again soon"
    world.shards.leading = True
    world.reassigned()
    assert world.kept == [set()]


async def test_a_gained_namespace_whose_hpas_are_not_known_yet_is_kept() -> None:
    world = World("theirs", mine=("gained",), missed=("gained", "theirs"))
    world.reassigned()
    assert world.kept == [{"gained"}]


async def test_a_deleted_hpa_keeps_nothing_before_the_first_assignment(world: World) -> None:
    for callback in world.source._callbacks:
        callback(Key("ours", "web"), hpa("web", namespace="ours"), None)
    assert world.kept == []
