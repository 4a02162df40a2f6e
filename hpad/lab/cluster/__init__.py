"""An API server inside the process, with controllers, and pods as local processes.

For the demo, for tests and for people who want to try a manifest. It is not a Kubernetes replacement: no
authentication, no scheduler, no images, no network, no persistence, and only the kinds of `resources`. What
it does answer has the shape of a Kubernetes 1.36 API server.

    async with Cluster(auto_ready=True) as cluster:
        cluster.apply(manifest)
        ...  # talk to cluster.url
"""

from hpad.lab.cluster.cluster import Cluster
from hpad.lab.cluster.errors import ApiError
from hpad.lab.cluster.resources import Resource, ScalePaths

__all__ = ["ApiError", "Cluster", "Resource", "ScalePaths"]
