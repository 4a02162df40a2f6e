"""The controllers of ReplicaSet and ReplicationController."""

from dataclasses import dataclass

from hpad.lab.cluster import pods, recorder
from hpad.lab.cluster.resources import PODS, Object, Resource
from hpad.lab.cluster.writes import Writer


@dataclass(frozen=True, eq=False, slots=True)
class ReplicaController:
    """Creates and deletes the pods of one kind of owner; deletes them in the order of `pods.deletion_rank`."""

    resource: Resource
    writer: Writer
    events: recorder.Recorder

    def reconcile(self, namespace: str, name: str) -> float | None:
        owner = self.writer.store.find(self.resource, namespace, name)
        if owner is None:
            return None
        if "deletionTimestamp" not in owner["metadata"]:
            self._scale(owner)
        return self._report(owner)

    def _scale(self, owner: Object) -> None:
        active = self._active(owner)
        missing = owner["spec"].get("replicas", 1) - len(active)
        for _ in range(missing):
            pod = pods.from_template(self.resource, owner, owner["spec"]["template"])
            pod["metadata"]["generateName"] = f"{owner['metadata']['name']}-"
            made = self.writer.create(PODS, owner["metadata"]["namespace"], pod)
            self._record(owner, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        for pod in sorted(active, key=pods.deletion_rank)[: max(0, -missing)]:
            self.writer.delete(PODS, pod)
            self._record(owner, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    def _record(self, owner: Object, reason: str, message: str) -> None:
        component = {"ReplicaSet": "replicaset-controller"}.get(self.resource.kind, "replication-controller")
        self.events.record(component, (self.resource, owner), reason, message)

    def _active(self, owner: Object) -> list[Object]:
        return [pod for pod in pods.owned_pods(self.writer.store, owner["metadata"]["uid"]) if pods.is_active(pod)]

    def _report(self, owner: Object) -> float | None:
        active = self._active(owner)
        now, needed = self.writer.clock.now(), owner["spec"].get("minReadySeconds", 0)
        waits = [wait for pod in active if (wait := pods.available_in(pod, needed, now)) is not None]
        status = {
            "replicas": len(active),
            "fullyLabeledReplicas": len(active),
            "readyReplicas": len(waits),
            "availableReplicas": sum(wait <= 0 for wait in waits),
            "observedGeneration": owner["metadata"].get("generation", 1),
        }
        shown = {name: number for name, number in status.items() if number or name == "replicas"}
        self.writer.set_status(self.resource, owner, shown)
        return min((wait for wait in waits if wait > 0), default=None)
