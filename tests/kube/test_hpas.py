"""What the cache of HPAs keeps of an HPA from one version to the next."""

import itertools
import json
import tracemalloc

from hpad.engine.spec import compiled_spec
from hpad.kube import codec
from hpad.kube.cluster import Cluster

_VERSIONS = itertools.count(1)


def version(goal="1Ki", *, name="web", replicas=1):
    """The next version of the HPA, as the API server writes it."""
    target = {"type": "AverageValue", "averageValue": goal}
    return codec.hpa(
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


async def test_a_status_leaves_the_spec_and_what_was_worked_out_of_it_where_they_are(client, clock):
    cluster = Cluster(client, clock)
    held = take(cluster, version())
    worked_out = compiled_spec(held)
    newer = take(cluster, version(replicas=2))
    assert newer.spec is held.spec
    assert compiled_spec(newer) is worked_out
    assert newer.status.current_replicas == 2
    assert newer.metadata.resource_version != held.metadata.resource_version


async def test_another_spec_takes_the_place_of_the_one_before(client, clock):
    """Even where it says the same in another way: the API server has it as it was written."""
    cluster = Cluster(client, clock)
    for goal in ("1Ki", "2Ki", "2048", "2Ki"):
        held = take(cluster, version(goal))
        assert str(held.spec.metrics[0].external.target.average_value) == goal
        assert compiled_spec(held).metrics[0].spec is held.spec.metrics[0]


async def test_statuses_take_the_place_of_little(client, clock):
    """Of an HPA with what is worked out of its spec less than a third is new after a status."""
    cluster = Cluster(client, clock)
    names = [f"app-{number}" for number in range(200)]

    def placed(replicas):
        """The bytes of new objects that stay."""
        tracemalloc.start()
        try:
            for name in names:
                compiled_spec(take(cluster, version(name=name, replicas=replicas)))
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    first, later = placed(1), placed(2)
    assert later < first / 3
