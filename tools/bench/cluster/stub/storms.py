"""What the bench may ask of the stub server: counts, and storms."""

import asyncio
from collections.abc import Callable

from tools.bench.cluster import child, population
from tools.bench.cluster.stub import watching
from tools.bench.cluster.stub.api import Api
from tools.bench.cluster.stub.http import Connection
from tools.bench.cluster.stub.objects import DEPLOYMENTS, HPAS, compact
from tools.bench.cluster.stub.watching import Change

_NEXT_NAMES = 1000
"""Added to the index of a pod that is created again: no HPA has so many pods."""


class Storms:
    """Changes the world all at once. `connections` are the open ones."""

    def __init__(self, api: Api, connections: set[Connection]) -> None:
        self._api = api
        self._connections = connections
        self._restart: asyncio.Task[None] | None = None

    def commands(self) -> child.Commands:
        """Returns the functions by their names; each answers with the counts (see `Traffic`)."""
        functions: dict[str, Callable[[], None]] = {
            "counts": lambda: None,
            "mark": self._api.traffic.mark,
            "delete-namespace": self.delete_namespace,
            "restart-pods": self.restart_pods,
            "fail-metrics": self.fail_metrics,
            "serve-metrics": self.serve_metrics,
            "disconnect": self.disconnect,
        }
        return {name: self._answering(function) for name, function in functions.items()}

    def delete_namespace(self) -> None:
        """Deletes the last namespace that there is, with all its objects."""
        objects, feeds = self._api.objects, self._api.feeds
        last = objects.population.namespaces - 1 - len(objects.gone)
        namespace, numbers = population.namespace(last), objects.population.numbers(last)
        for number in numbers:
            for index in objects.indexes(number):
                self._api.publish_pod(b"DELETED", number, index)
            objects.pods[number] = range(0)
            for plural, versions in ((DEPLOYMENTS, objects.target_versions), (HPAS, objects.versions)):
                version = versions[number] = objects.next_version()
                document = objects.hpa(number) if plural == HPAS else objects.deployment(number)
                feeds[plural].publish(Change(version, namespace, watching.line(b"DELETED", document)))
        objects.gone.add(namespace)
        self._api.usage.changed(last)
        self._api.traffic.forget(numbers)

    def restart_pods(self) -> None:
        """Deletes every pod and creates it under another name, namespace by namespace, as fast as that goes."""
        self._restart = asyncio.create_task(self.restarted())

    async def restarted(self) -> None:
        objects = self._api.objects
        for index in range(objects.population.namespaces):
            for number in objects.numbers(population.namespace(index)):
                old = objects.indexes(number)
                new = objects.pods[number] = range(old.start + _NEXT_NAMES, old.stop + _NEXT_NAMES)
                for before, after in zip(old, new, strict=True):
                    self._api.publish_pod(b"DELETED", number, before)
                    self._api.publish_pod(b"ADDED", number, after)
            self._api.usage.changed(index)
            await asyncio.sleep(0)  # requests are answered meanwhile

    def fail_metrics(self) -> None:
        """Begins to refuse lists of metrics."""
        self._api.metrics_fail = True

    def serve_metrics(self) -> None:
        """Answers lists of metrics again, and begins to count the HPAs that are reconciled."""
        self._api.metrics_fail = False
        self._api.traffic.recount()

    def disconnect(self) -> None:
        """Closes all connections at once."""
        for connection in list(self._connections):
            connection.transport.abort()

    def _answering(self, function: Callable[[], None]) -> Callable[[], bytes]:
        def answer() -> bytes:
            function()
            return compact(self._api.traffic.counts())

        return answer
