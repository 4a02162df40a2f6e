"""Changes of HPAs of other replicas: they stay bytes until somebody asks for the HPA."""

import json

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from hpad.api.metadata import Key
from hpad.kube import hpa_bytes, paths
from hpad.kube.hpa_cache import HpaCache
from hpad.kube.reflector import Kind
from hpad.kube.watch import WatchScope

KEY = Key("shop", "web")
OTHERS = Key("shop", "own")


class World:
    """A cache that has one HPA of another replica, and counts what it decodes as a whole."""

    def __init__(self, client, *, foreign=lambda key: key == KEY):
        self.decoded, self.noticed, self.changed = [], [], []
        kind = Kind(paths.HPAS, self.decode, lambda hpa: hpa.metadata.resource_version)
        self.cache = HpaCache(WatchScope(client), kind)
        self.cache.share(foreign, lambda key, ago: self.noticed.append(key))
        self.cache.subscribe(lambda key, old, new: self.changed.append(key))
        self.take(hpa())
        self.changed.clear()

    def decode(self, raw):
        self.decoded.append(raw)
        return hpa_bytes.decode(raw)

    def take(self, body):
        self.cache.put(hpa_bytes.decode(json.dumps(body).encode()))

    def leaves(self, body, key=KEY):
        line = json.dumps({"type": "MODIFIED", "object": body}).encode()
        return self.cache.leaves_unread(key, body["metadata"]["resourceVersion"], line)


@pytest.fixture
async def world(client):
    return World(client)


def hpa(version="10", *, metadata=None, spec=None, **status):
    """An HPA as the API server has it."""
    times = {"manager": "hpad", "operation": "Update", "subresource": "status", "time": f"2026-01-01T00:00:{version}Z"}
    head = {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": version, "managedFields": [times]}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {**head, **(metadata or {})},
        "spec": {"scaleTargetRef": target, "maxReplicas": 9, **(spec or {})},
        "status": {"currentReplicas": 1, "desiredReplicas": 1, **status},
    }


async def test_a_changed_status_is_read_when_it_is_asked_for(world):
    assert world.leaves(hpa("11", currentReplicas=2))
    assert (world.noticed, world.changed) == ([KEY], [])
    assert world.cache.keys() == [KEY]
    assert KEY in world.cache
    assert len(world.cache) == 1
    assert world.leaves(hpa("12", currentReplicas=3, lastScaleTime="2026-01-01T00:00:00Z"))
    found = world.cache.get(KEY)
    assert (found.metadata.resource_version, found.status.current_replicas) == ("12", 3)
    assert str(found.status.last_scale_time) == "2026-01-01 00:00:00+00:00"
    assert world.changed == []


async def test_all_are_read_where_all_are_asked_for(world):
    assert world.leaves(hpa("11", currentReplicas=2))
    assert [each.status.current_replicas for each in world.cache.values()] == [2]


STATUSES = st.fixed_dictionaries(
    {},
    optional={
        "currentReplicas": st.integers(0, 9),
        "desiredReplicas": st.integers(0, 9),
        "observedGeneration": st.integers(0, 5),
        "lastScaleTime": st.sampled_from([None, "2026-01-01T00:00:00Z"]),
        "fromTheFuture": st.sampled_from([1, {"a": [None, "ü"]}]),
        "conditions": st.lists(
            st.fixed_dictionaries({"type": st.sampled_from("AB"), "status": st.just("True"), "message": st.text()}),
            max_size=2,
        ),
        "currentMetrics": st.just(
            [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "1500m"}}}]
        ),
    },
)


@given(st.lists(STATUSES, min_size=1, max_size=3))
def test_what_is_read_late_is_what_would_have_been_read_at_once(statuses):
    """The HPA, and the object that a write of its next status would send."""
    stored = hpa_bytes.decode(json.dumps(hpa()).encode())
    value, original = stored.value, stored.original
    for number, status in enumerate(statuses, start=11):
        body = {**hpa(str(number)), "status": status}
        changed = hpa_bytes.changed_status(json.dumps(body).encode(), original)
        late = hpa_bytes.with_status(value, original, changed)
        at_once = hpa_bytes.decode(json.dumps(body).encode())
        assert late.value == at_once.value
        sent = [hpa_bytes.body(each.original, each.version, b'{"desiredReplicas":7}') for each in (late, at_once)]
        assert json.loads(sent[0]) == json.loads(sent[1])


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"maxReplicas": 10}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"hpad.io/mode": "paused"}}},
        {"metadata": {"uid": "another"}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
    ids=lambda change: str(*change.values()),
)
async def test_an_edit_calls_back_when_it_is_asked_for(world, change):
    edited = hpa(**{"version": "11", **change})
    assert world.leaves(edited)
    assert (world.noticed, world.changed, world.decoded) == ([KEY], [], [])
    assert world.cache.get(KEY) == hpa_bytes.decode(json.dumps(edited).encode()).value
    assert world.changed == [KEY]
    assert world.cache.get(KEY) is world.cache.get(KEY)
    assert len(world.decoded) == 1


async def test_a_status_after_an_edit_that_nobody_asked_for_keeps_the_edit(world):
    assert world.leaves(hpa("11", spec={"maxReplicas": 10}))
    assert world.leaves(hpa("12", spec={"maxReplicas": 10}, currentReplicas=3))
    (found,) = world.cache.values()
    assert (found.spec.max_replicas, found.status.current_replicas) == (10, 3)
    assert world.changed == [KEY]


@pytest.mark.parametrize("version", ["9", "10", "opaque", ""])
async def test_a_version_that_is_not_later_is_left_to_the_usual_way(world, version):
    assert not world.leaves(hpa(version))
    assert world.noticed == []


async def test_a_status_of_an_own_hpa_is_read_at_once(client):
    world = World(client, foreign=lambda key: False)
    assert not world.leaves(hpa("11"))


async def test_a_status_of_an_unknown_hpa_is_read_at_once(world):
    assert not world.leaves(hpa("11"), OTHERS)


async def test_the_version_of_an_unread_status_counts(world):
    assert world.leaves(hpa("12"))
    assert world.cache.has(KEY, "12")
    assert not world.cache.has(KEY, "10")
    assert not world.leaves(hpa("11"))
    world.take(hpa("11", currentReplicas=5))
    assert world.cache.get(KEY).status.current_replicas == 1
    world.cache.drop(KEY, "11")
    assert KEY in world.cache
    world.cache.drop(KEY, "13")
    assert KEY not in world.cache
    assert world.cache.get(KEY) is None


async def test_an_edit_after_an_unread_status_replaces_it(world):
    world.leaves(hpa("11", currentReplicas=2))
    world.take(hpa("12", spec={"maxReplicas": 20}, currentReplicas=3))
    assert (world.cache.get(KEY).spec.max_replicas, world.cache.get(KEY).status.current_replicas) == (20, 3)
    assert world.changed == [KEY]


async def test_an_hpa_that_is_kept_no_more_loses_its_unread_status(world):
    world.leaves(hpa("11"))
    world.cache.purge(KEY)
    assert world.cache.get(KEY) is None
    assert list(world.cache.values()) == []


@pytest.mark.parametrize("change", [{"currentReplicas": "many"}, {"spec": {"maxReplicas": "many"}}])
async def test_an_unreadable_change_drops_the_hpa_as_in_a_watch(world, change):
    assert world.leaves(hpa("11", **change))
    with structlog.testing.capture_logs() as logged:
        assert world.cache.get(KEY) is None
    assert [(line["event"], line["name"]) for line in logged] == [("object cannot be read", "web")]
    assert world.changed == [KEY]
