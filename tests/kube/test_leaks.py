"""Objects that are gone leave nothing behind, in no container of what knows the cluster."""

import json

from support.references import containers
from support.scripted_server import says

from hpad.api.metadata import Key
from hpad.engine.conditions import Event
from hpad.kube.cluster import Cluster

MANY = 500
FEW = 100
"""Less than one for each, even of what is let go of some at a time: the events of 32 HPAs."""


def hpa(name):
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {"metadata": head(name), "spec": {"scaleTargetRef": ref, "maxReplicas": 9}}


def deployment(name):
    return {"metadata": head(name), "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}}}


def pod(name):
    container = {"name": name, "resources": {"requests": {"cpu": "100m"}}}
    return {"metadata": head(name), "spec": {"containers": [container]}, "status": {"phase": "Running"}}


def head(name):
    return {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1", "labels": {"app": name}}


async def test_objects_that_are_gone_leave_nothing(script, client, clock, running):
    cluster = Cluster(client, clock)
    running(cluster.event_recorder.run())
    script.on("POST", "/api/v1/namespaces/n/events", says({}, 201))
    kept = {cluster.hpas: hpa, cluster.targets["apps", "Deployment"]: deployment, cluster.pods: pod}
    empty = containers(cluster)
    names = [f"app-{number}" for number in range(MANY)]
    for name in names:
        for cache, made in kept.items():
            record = cache.kind.decode(json.dumps(made(name)).encode())
            cache.put(record)
            cache.offer(record)
        cluster.event_recorder.record(
            cluster.hpas.get(Key("n", name)), Event("Normal", "SuccessfulRescale", f"of {name}")
        )
    await cluster.event_recorder.flush()
    assert cluster.event_recorder.dropped == 0
    full = containers(cluster)
    for name in names:
        for cache in kept:
            cache.drop(Key("n", name), "2")
    assert sum(size >= MANY for size in full.values()) >= 10
    assert {where: size for where, size in containers(cluster).items() if size > empty.get(where, 0) + FEW} == {}
