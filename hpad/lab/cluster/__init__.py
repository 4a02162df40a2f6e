"""An API server inside the process, with controllers, and pods as local processes.

For the demo, for tests, for trying a manifest, and for workers of one machine (`Cluster(service=...)`). It does not
replace Kubernetes: it has no scheduler, no images and no network, and persistence only as a service; it serves the
kinds of `resources` only, and authenticates and authorizes only when `authorization` is on. Its responses are those of
a Kubernetes 1.36 API server.

Limits:
- Discovery lists the subresources attach, exec, portforward, proxy, binding, eviction, ephemeralcontainers, resize,
  token, approval and finalize, but requests to them fail.
- Objects of kinds without a controller are stored and have no effect. Services get no address.
- OpenAPI v3 has the types of the common kinds, without descriptions, and only the parameters that kubectl reads.
  OpenAPI v2 has no types.
- Requests are not proxied to APIServices.

    async with Cluster(auto_ready=True) as cluster:
        cluster.apply(manifest)
        ...  # talk to cluster.url
"""

from hpad.lab.cluster.cluster import Cluster
from hpad.lab.cluster.errors import ApiError
from hpad.lab.cluster.resources import Resource, ScalePaths
from hpad.lab.cluster.snapshots import SnapshotError

__all__ = ["ApiError", "Cluster", "Resource", "ScalePaths", "SnapshotError"]
