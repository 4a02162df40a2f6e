"""The objects that the cache of HPAs keeps from one version of an HPA to the next."""

import itertools
import json
import tracemalloc

import pytest

from hpad.engine.spec import compiled_spec
from hpad.kube import hpas
from hpad.kube.cluster import Cluster

_VERSIONS = itertools.count(1)


def version(goal="1Ki", *, name="web", replicas=1, decode=hpas.hpa):
    """The next version of the HPA, as the API server writes it."""
    target = {"type": "AverageValue", "averageValue": goal}
    return decode(
        json.dumps(
            {
                "metadata": {"name": name, "namespace": "n", "uid": "u", "resourceVersion": str(next(_VERSIONS))},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                    "maxReplicas": 9,
                    "metrics": [{"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}],
                },
                "status": {"currentReplicas": replicas, "desiredReplicas": replicas},
            }
        ).encode()
    )


def take(cluster, record):
    cluster.hpas.put(record)
    return cluster.hpas.get(record.key)


DECODERS = pytest.mark.parametrize("decode", [hpas.hpa, hpas.decode], ids=["the object", "with its bytes"])


@DECODERS
async def test_a_change_of_the_status_keeps_the_spec_object_and_its_compiled_form(client, clock, decode):
    cluster = Cluster(client)
    stored = take(cluster, version(decode=decode))
    compiled = compiled_spec(stored)
    newer = take(cluster, version(replicas=2, decode=decode))
    assert newer.spec is stored.spec
    assert compiled_spec(newer) is compiled
    assert newer.status.current_replicas == 2
    assert newer.metadata.resource_version != stored.metadata.resource_version


@DECODERS
async def test_a_changed_spec_replaces_the_stored_one(client, clock, decode):
    """Also by an equal spec with another text: hpad shows quantities as they were written."""
    cluster = Cluster(client)
    for goal in ("1Ki", "2Ki", "2048", "2Ki"):
        stored = take(cluster, version(goal, decode=decode))
        assert str(stored.spec.metrics[0].external.target.average_value) == goal
        assert compiled_spec(stored).metrics[0].spec is stored.spec.metrics[0]


async def test_a_change_of_the_status_replaces_little_memory(client, clock):
    """Less than half of the bytes of an HPA with its compiled spec is new after a change of the status."""
    cluster = Cluster(client)
    names = [f"app-{number}" for number in range(200)]

    def allocated(replicas):
        """The size of the new objects that remain, in bytes."""
        tracemalloc.start()
        try:
            for name in names:
                compiled_spec(take(cluster, version(name=name, replicas=replicas)))
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    first, later = allocated(1), allocated(2)
    assert later < first / 2
