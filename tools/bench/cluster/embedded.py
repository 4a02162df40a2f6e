"""Runs the embedded API server of `hpad.lab.cluster` with a population as a process."""

import asyncio
from typing import Any

from hpad.lab.cluster import Cluster, resources
from tools.bench.cluster import child, population
from tools.bench.cluster.population import Population
from tools.bench.cluster.stub.objects import compact

_MOVE_SECONDS = 1.0


async def serve(of: Population, options: dict[str, Any]) -> None:
    """Serves without TLS. The usage of all pods of a namespace moves once in half a `period`, in seconds."""
    async with Cluster(controllers=False, kubelet=False, history_limit=5_000) as cluster:
        for number in range(of.hpas):
            _fill(cluster, of, number)
        moving = asyncio.create_task(_move(cluster, of, options["period"] / 2))
        await child.obey(cluster.url, _commands(cluster))
        moving.cancel()


def _fill(cluster: Cluster, of: Population, number: int) -> None:
    cluster.apply(population.deployment(of, number))
    cluster.apply(population.hpa(of, number))
    for index in range(of.pods):
        made = population.pod(of, number, index)
        cluster.apply(made)
        own = made["metadata"]
        cluster.set_pod_status(own["name"], population.pod_status(number, index), own["namespace"])


async def _move(cluster: Cluster, of: Population, seconds: float) -> None:
    """Moves the usage of the namespaces one after the other; each value is within the tolerance."""
    moves = 0
    while True:
        for namespace in range(of.namespaces):
            cpu, memory = population.cpu_used(moves + namespace), population.memory_used(moves + namespace)
            for number in of.numbers(namespace):
                usage = {"app": {"cpu": f"{cpu}m", "memory": f"{memory}Ki"}}
                for index in range(of.pods):
                    cluster.usage.set(f"{of.namespace(number)}/{population.name(number)}-{index}", usage)
            if namespace % 20 == 0:
                await asyncio.sleep(0)
        moves += 1
        cluster.log.writes.clear()
        await asyncio.sleep(seconds)


def _commands(cluster: Cluster) -> child.Commands:
    """Returns the commands `counts` and `mark` of `stub.storms`."""
    marked = _versions(cluster)

    def counts() -> bytes:
        requests = {
            f"{verb} {resource}{'/' if subresource else ''}{subresource}": number
            for (verb, resource, subresource), number in cluster.log.requests.items()
        }
        # The log has no groups. hpad watches pods without a list, so that all lists of pods are those of metrics.
        requests["list pods.metrics.k8s.io"] = requests.pop("list pods", 0)
        written = sum(version != marked[name] for name, version in _versions(cluster).items())
        return compact({"requests": requests, "reconciled": written})

    def mark() -> bytes:
        marked.update(_versions(cluster))
        return counts()

    return {"counts": counts, "mark": mark}


def _versions(cluster: Cluster) -> dict[str, str]:
    found = (hpa["metadata"] for hpa in cluster.store.objects(resources.HPAS))
    return {metadata["name"]: metadata["resourceVersion"] for metadata in found}


if __name__ == "__main__":
    child.main(serve)
