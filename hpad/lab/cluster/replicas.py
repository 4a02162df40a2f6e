"""ReplicaSet and ReplicationController: as many pods as asked for."""

from dataclasses import dataclass

from hpad.lab.cluster import pods, recorder
from hpad.lab.cluster.resources import PODS, Object, Resource
from hpad.lab.cluster.writes import Writer


@dataclass(frozen=True, eq=False, slots=True)
class ReplicaController:
    """Keeps the pods of one kind of replica owner; surplus ones go in the order of `pods.deletion_rank`."""

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
        held = [pod for pod in self._pods(owner) if pods.is_active(pod)]
        missing = owner["spec"].get("replicas", 1) - len(held)
        for _ in range(missing):
            pod = pods.from_template(self.resource, owner, owner["spec"]["template"])
            pod["metadata"]["generateName"] = f"{owner['metadata']['name']}-"
            made = self.writer.create(PODS, owner["metadata"]["namespace"], pod)
            self._tell(owner, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        for pod in sorted(held, key=pods.deletion_rank)[: max(0, -missing)]:
            self.writer.delete(PODS, pod)
            self._tell(owner, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    def _tell(self, owner: Object, reason: str, message: str) -> None:
        component = {"ReplicaSet": "replicaset-controller"}.get(self.resource.kind, "replication-controller")
        self.events.record(component, (self.resource, owner), reason, message)

    def _pods(self, owner: Object) -> list[Object]:
        return pods.owned_pods(self.writer.store, owner["metadata"]["uid"])

    def _report(self, owner: Object) -> float | None:
        held = [pod for pod in self._pods(owner) if pods.is_active(pod)]
        now, needed = self.writer.clock.now(), owner["spec"].get("minReadySeconds", 0)
        waits = [wait for pod in held if (wait := pods.available_in(pod, needed, now)) is not None]
        status = {
            "replicas": len(held),
            "fullyLabeledReplicas": len(held),
            "readyReplicas": len(waits),
            "availableReplicas": sum(wait <= 0 for wait in waits),
            "observedGeneration": owner["metadata"].get("generation", 1),
        }
        shown = {name: number for name, number in status.items() if number or name == "replicas"}
        self.writer.set_status(self.resource, owner, shown)
        return min((wait for wait in waits if wait > 0), default=None)
