"""Shared by tests of caches: listed HPAs, and the contents of caches."""

import asyncio

from support.scripted_server import says

from hpad.kube import hpas, paths
from hpad.kube.cache import ABSENT
from hpad.kube.reflector import Kind

HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
HPA = Kind(paths.HPAS, hpas.hpa, lambda hpa: hpa.metadata.resource_version, absent=ABSENT)


def hpa(name, version, **spec):
    meta = {"name": name, "namespace": "n", "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {"maxReplicas": 3, **spec}}


def page(*items, version=10, token=""):
    return says({"metadata": {"resourceVersion": str(version), "continue": token}, "items": list(items)})


def names(cache):
    return sorted(value.metadata.name for value in cache.values())


def lists(script):
    """Returns the number of full lists; the version probe lists with limit=1."""
    return sum(1 for _, path, query in script.asked if path == HPAS and query.get("limit") != "1")


async def synced(cache):
    await asyncio.wait_for(cache.synced.wait(), 60)
