"""An API server inside the process, with controllers, and pods as local processes.

For the demo, for tests and for people who want to try a manifest. It is not a Kubernetes replacement: no
scheduler, no images, no network, no persistence, only the kinds of `resources`, and authentication and
authorization only where asked for. What it does answer is what a Kubernetes 1.36 API server answers.

What discovery tells of and nobody answers: the subresources attach, exec, portforward, proxy, binding, eviction,
ephemeralcontainers, resize, token, approval and finalize. Objects of kinds that no part of the cluster acts on are
kept, and nothing comes of them; services get no address. OpenAPI v3 has the types of what people apply, without
descriptions, and no parameters but those kubectl looks for; OpenAPI v2 has no types. APIServices are not proxied to.

    async with Cluster(auto_ready=True) as cluster:
        cluster.apply(manifest)
        ...  # talk to cluster.url
"""

from hpad.lab.cluster.cluster import Cluster
from hpad.lab.cluster.errors import ApiError
from hpad.lab.cluster.resources import Resource, ScalePaths

__all__ = ["ApiError", "Cluster", "Resource", "ScalePaths"]
