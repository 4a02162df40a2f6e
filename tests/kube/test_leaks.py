"""Deleted objects leave no entries in the containers that are reachable from a Cluster."""

import json

from support.references import containers

from hpad.api.metadata import Key
from hpad.kube.cluster import Cluster

MANY = 500


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


async def test_no_container_keeps_entries_of_deleted_objects(client, clock):
    cluster = Cluster(client)
    kept = {cluster.hpas: hpa, cluster.targets["apps", "Deployment"]: deployment, cluster.pods: pod}
    empty = containers(cluster)
    names = [f"app-{number}" for number in range(MANY)]
    for name in names:
        for cache, made in kept.items():
            record = cache.kind.decode(json.dumps(made(name)).encode())
            cache.put(record)
            cache.offer(record)
    full = containers(cluster)
    for name in names:
        for cache in kept:
            cache.drop(Key("n", name), "2")
    assert sum(size >= MANY for size in full.values()) > len(kept)
    assert {where: size for where, size in containers(cluster).items() if size > empty.get(where, 0)} == {}
