"""The embedded cluster: starts, stops, and gives tests direct access to its objects."""

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from hpad import clock as clocks
from hpad.lab.cluster import (
    admission,
    authenticator,
    bodies,
    cgroups,
    definitions,
    deployments,
    discovery,
    errors,
    faults,
    files,
    hosts,
    kubeconfig,
    patches,
    rbac,
    reaper,
    recorder,
    resources,
    reviews,
    server,
    snapshots,
    statefulsets,
    store,
    usage,
    users,
    watches,
    writes,
)
from hpad.lab.cluster import controllers as loops
from hpad.lab.cluster import kubelet as kubelets
from hpad.lab.cluster import tls as https
from hpad.lab.cluster.listener import Listener
from hpad.lab.cluster.resources import Object, Resource, copied

_SERVICE_HISTORY = 1_000
"""Changes that a service keeps for watches; each takes a few kB."""
_EXPIRE_SECONDS = 60.0


class Cluster:
    """An API server on loopback with controllers and, by default, a kubelet that runs local processes.

    - `kubelet`: run pods as processes; a container without a command is simulated. Without a kubelet, pods stay
      Pending until a client writes their status.
    - `auto_ready`: run no processes; pods are Running and Ready as soon as they exist.
    - `controllers`: run the controllers that create pods for workloads.
    - `sampling_seconds`: period of reading usage. The first metrics of a pod need two samples.
    - `resync_seconds`: period after which the controllers reconcile every workload again.
    - `bookmark_seconds`: period of bookmarks on a watch.
    - `grace_seconds`: limit for pods to stop when the cluster stops.
    - `history_limit`: number of changes kept for watches; a watch from an older resourceVersion gets 410.
    - `scale_to_zero`: the API server's feature gate HPAScaleToZero, with which minReplicas may be 0.
    - `kinds`: further kinds to serve, as CustomResourceDefinitions would add them.
    - `authorization`: authenticate requests (by token or client certificate) and authorize them by RBAC. Without it,
      every request is that of the administrator.
    - `tokens`: bearer tokens and their users, beside those that `token` creates.
    - `tls`: serve HTTPS with these files, and authenticate client certificates.
    - `service`: keeps objects in this file over restarts, and runs processes as `Host.is_service` says; pods stop
      within their own grace periods, and memory stays bounded for months. `limits_apply` says whether limits of
      containers are enforced.
    - `directory`: holds working directories and logs of containers; by default a temporary one, removed at the end.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        kubelet: bool = True,
        auto_ready: bool = False,
        controllers: bool = True,
        sampling_seconds: float = 5.0,
        resync_seconds: float = 10.0,
        bookmark_seconds: float = 60.0,
        grace_seconds: float = 5.0,
        history_limit: int = 20_000,
        scale_to_zero: bool = False,
        service: Path | None = None,
        directory: Path | None = None,
        kinds: Iterable[Resource] = (),
        authorization: bool = False,
        tokens: Mapping[str, users.User] | None = None,
        tls: https.Files | None = None,
        clock: clocks.Clock | None = None,
    ) -> None:
        self.clock = clock or clocks.SystemClock()
        self.store = store.Store(history_limit if service is None else _SERVICE_HISTORY)
        self.registry = resources.Registry((*resources.BUILT_IN, *kinds))
        rbac.register(self.registry)
        reviews.register(self.registry)
        self.users = users.Users(tokens)
        self.writer = writes.Writer(self.store, self.clock, scale_to_zero)
        self.files = files.Files(self.writer, self.registry)
        self._events = recorder.Recorder(self.store, self.clock)
        self.hub = watches.Hub(self.store, bookmark_seconds)
        self.log = server.RequestLog(keeps_writes=service is None)
        self.faults = faults.Faults(self.hub, self.clock)
        self.url = ""
        self.directory = directory
        self.limits_apply = False
        self._snapshot = None if service is None else snapshots.Snapshot(service, self.store, self.registry, self.clock)
        self._port = port
        self._authorization = authorization
        self._tls = tls
        self._own_directory = directory is None
        self._runs_processes = kubelet and not auto_ready
        self._auto_ready = auto_ready
        self._has_controllers = controllers
        self._resync_seconds = resync_seconds
        self._grace_seconds = grace_seconds
        self._kubelet: kubelets.Kubelet | None = None
        self.usage = usage.Usage(self.clock, sampling_seconds, self._roots, self._simulated, self._measure)
        self._server = server.Server(
            self.store,
            self.registry,
            self.writer,
            self.hub,
            self.usage,
            self.log,
            self.faults,
            self.clock,
            self._folder,
            authenticator.Authenticator(
                rbac.Authorizer(self.store, authorization), self.users if authorization else None
            ),
        )
        self._listener: Listener | None = None
        self._loop: loops.Loop | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _roots(self) -> dict[int, tuple[str, str, str]]:
        return self._kubelet.roots() if self._kubelet else {}

    def _measure(self, pids: Iterable[int]) -> dict[int, tuple[float, int]]:
        return self._kubelet.host.usage(pids) if self._kubelet else {}

    def _simulated(self) -> list[tuple[str, str, str]]:
        return self._kubelet.simulated() if self._kubelet else []

    def _folder(self, pod: Object) -> Path | None:
        """Returns the folder with the logs of a pod, None without processes; raises ApiError 400 in a service."""
        if self._snapshot is not None:
            command = f"journalctl -t {pod['metadata']['name']}"
            raise errors.bad_request(f"the output of this pod is in the journal of the machine: {command}")
        return self._kubelet.folder(pod) if self._kubelet else None

    async def start(self) -> None:
        """Starts the cluster; when that fails, stops what runs already. Raises OSError when the port is taken."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
            self.writer.create(resources.NAMESPACES, "", {"metadata": {"name": name}})
        if self._authorization:
            for default in rbac.DEFAULTS:
                self.apply(default)
        self.store.subscribe(loops.Collector(self.writer).on_change)
        self.store.subscribe(definitions.Definitions(self.registry, self.writer).on_change)
        if self._snapshot is not None:
            await self._snapshot.restore()
            self._tasks += [asyncio.create_task(self._snapshot.run()), asyncio.create_task(self._expire())]
        if self._auto_ready or self._runs_processes:
            self.apply(kubelets.node_manifest(discovery.VERSION["gitVersion"], self.clock.now()))
            self.apply(kubelets.node_lease())
        if self._auto_ready:
            self.store.subscribe(kubelets.SimulatedKubelet(self.writer.by(kubelets.AUTHOR)).on_change)
        if self._runs_processes:
            await self._start_kubelet()
        if self._has_controllers:
            self._start_controllers()
        context = await asyncio.to_thread(self._tls.context) if self._tls else None
        self._listener = await Listener.open(self._server.application(), self._port, context)
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self._listener.port}"

    async def _start_kubelet(self) -> None:
        if self.directory is None:
            self.directory = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="hpad-lab-"))
        reaping = reaper.Reaper(str(uuid.uuid4()), self.directory if self._own_directory else None)
        groups = await asyncio.to_thread(cgroups.Groups.delegated) if self._snapshot else None
        self.limits_apply = groups is not None
        host = hosts.Host(reaping, self._snapshot is not None, groups)
        self._kubelet = kubelets.Kubelet(self.writer.by(kubelets.AUTHOR), self.directory, host, self._events)
        await reaping.start()
        self.store.subscribe(self._kubelet.on_change)
        self._tasks.append(asyncio.create_task(self.usage.run()))

    def _start_controllers(self) -> None:
        events = self._events
        made: list[loops.Controller] = [
            deployments.ReplicaController(resources.REPLICA_SETS, self.writer, events),
            deployments.ReplicaController(resources.REPLICATION_CONTROLLERS, self.writer, events),
            deployments.DeploymentController(self.writer, events),
            statefulsets.StatefulSetController(self.writer, events),
        ]
        self._loop = loops.Loop(self.store, self.clock, made, self._resync_seconds)
        self._loop.start()

    async def stop(self) -> None:
        """Stops the controllers, then every process, then the listener, and removes a temporary directory.

        A controller that still ran would replace the pods that are being stopped.
        """
        if self._loop is not None:
            await self._loop.stop()
        if self._kubelet is not None:
            await self._kubelet.stop(None if self._snapshot else self._grace_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._snapshot is not None and self._listener is not None:
            await self._snapshot.save()
        if self._listener is not None:
            self._server.release()
            await asyncio.shield(self._listener.close())
        if self._own_directory and self.directory is not None:
            await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)

    async def _expire(self) -> None:
        while True:
            await self.clock.sleep(_EXPIRE_SECONDS)
            self.expire_events()

    def expire_events(self) -> None:
        """Removes events that are an hour old. A service does so each minute."""
        self._events.expire()

    @property
    def longest_grace(self) -> float:
        """Returns the seconds after which the last process is killed when a service stops now."""
        return self._kubelet.longest_grace() if self._kubelet else 0.0

    async def kubeconfig(self, path: Path, user: users.User = users.ADMINISTRATOR) -> Path:
        """Writes a kubeconfig for this cluster, with a token of `user` if the cluster authenticates."""
        token = self.token(user) if self._authorization else None
        await asyncio.to_thread(kubeconfig.write, path, self.url, token, self._tls.authority if self._tls else None)
        return path

    def token(self, user: users.User) -> str:
        """Returns a bearer token for a user; `users.named` and `users.service_account` create users."""
        return self.users.token(user)

    def serve(self, resource: Resource) -> None:
        """Serves a further kind from now on, as a CustomResourceDefinition would."""
        self.registry.add(resource)

    def apply(self, manifest: Object) -> Object:
        """Creates an object, or merges a manifest into the existing one; returns a copy of the result.

        Creates the namespace if needed. Writes the status in the manifest too, which through the API takes a second
        request. Raises ApiError as the API would, 404 for a kind that is not served. Expects fields of the types that
        `unknown_fields` checks; probes may have fractions of seconds.
        """
        resource, version = self._resource(manifest)
        metadata = manifest.get("metadata") or {}
        namespace = metadata.get("namespace") or "default" if resource.namespaced else ""
        if namespace and self.store.find(resources.NAMESPACES, "", namespace) is None:
            self.writer.create(resources.NAMESPACES, "", {"metadata": {"name": namespace}})
        old = self.store.find(resource, namespace, metadata.get("name", ""))
        if old is None:
            made = self.writer.create(resource, namespace, manifest)
        else:
            made = self.writer.patch(resource, old, version, patches.APPLY, manifest)
        if resource.has_status and "status" in manifest:
            patch = {"status": manifest["status"]}
            made = self.writer.patch(resource, made, version, patches.MERGE, patch, "status")
        return copied(made)

    def unknown_fields(self, manifest: Object) -> list[str]:
        """Returns the paths of the fields of a manifest that its kind does not have, and that `apply` drops.

        Raises ApiError 400 for a field of another type than its kind has, and 404 for a kind that is not served.
        """
        if problem := bodies.head_fault(manifest):
            raise errors.bad_request(problem)
        resource, _ = self._resource(manifest)
        if problem := bodies.type_fault(resource, manifest):
            raise errors.bad_request(problem)
        return admission.unknown_fields(resource, manifest)

    def _resource(self, manifest: Object) -> tuple[Resource, str]:
        api_version, kind = manifest.get("apiVersion", ""), manifest.get("kind", "")
        found = self.registry.of_kind(api_version, kind)
        if found is None:
            message = f'no matches for kind "{kind}" in version "{api_version}"'
            raise errors.ApiError(404, "NotFound", message)
        return resources.stored(found, api_version.rpartition("/")[2])

    def delete(self, plural: str, name: str, namespace: str = "default", *, grace: int | None = None) -> None:
        """Deletes an object as a client would; `grace` is the grace period in seconds. Raises ApiError 404."""
        resource = self._by_plural(plural)
        found = self.store.get(resource, namespace if resource.namespaced else "", name)
        self.writer.delete(resource, found, writes.DeleteOptions(grace=grace))

    def get(self, plural: str, name: str, namespace: str = "default") -> Object | None:
        """Returns a copy of an object by its plural (`"deployments"`), None if it does not exist."""
        resource = self._by_plural(plural)
        found = self.store.find(resource, namespace if resource.namespaced else "", name)
        return copied(found)

    def list(self, plural: str, namespace: str | None = None) -> list[Object]:
        """Returns copies of all objects of a resource, or of those in one namespace."""
        return copied(self.store.objects(self._by_plural(plural), namespace))

    def _by_plural(self, plural: str) -> Resource:
        for group, versions in self.registry.groups().items():
            found = self.registry.find(group, versions[0], plural)
            if found is not None and not found.virtual:
                return found
        raise errors.unknown_resource()

    def set_pod_status(self, name: str, status: Object, namespace: str = "default") -> Object:
        """Writes a pod's status as a kubelet would; raises ApiError 404."""
        pod = self.store.get(resources.PODS, namespace, name)
        return copied(self.writer.set_status(resources.PODS, pod, status))

    def pids(self) -> dict[str, int]:
        """Maps `"namespace/pod/container"` to the pid of its main process, for all running containers."""
        return {"/".join(names): pid for pid, names in self._roots().items()}
