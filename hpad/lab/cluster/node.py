"""The only node of the embedded cluster: this machine, with the fields that kubectl shows of a node."""

import os
import platform
from datetime import datetime
from typing import Final

from hpad.lab.cluster import strategy
from hpad.lab.cluster.resources import Object

NAME: Final = "local"
_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def manifest(version: str, now: datetime) -> Object:
    """Returns the Node, ready since `now`, with a kubelet of this version."""
    names = {"hostname": NAME, "os": "linux", "arch": _architecture()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": NAME,
            "labels": {
                **{f"kubernetes.io/{name}": value for name, value in names.items()},
                "node-role.kubernetes.io/control-plane": "",
            },
        },
        "spec": {},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": NAME}],
            "capacity": _capacity(),
            "allocatable": _capacity(),
            "conditions": [_condition(*each, strategy.timestamp(now)) for each in _CONDITIONS],
            "nodeInfo": _info(version),
        },
    }


def lease() -> Object:
    """Returns the Lease of the node, which `kubectl describe node` reads."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": NAME, "leaseDurationSeconds": 40},
    }


def _capacity() -> dict[str, str]:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"cpu": str(os.cpu_count() or 1), "memory": f"{pages // 1024}Ki", "pods": "110"}


def _condition(kind: str, status: str, reason: str, message: str, now: str) -> Object:
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"type": kind, "status": status, "reason": reason, "message": message, **times}


def _info(version: str) -> dict[str, str]:
    return {
        "architecture": _architecture(),
        "bootID": "",
        "containerRuntimeVersion": f"process://{platform.python_version()}",
        "kernelVersion": platform.release(),
        "kubeProxyVersion": "",
        "kubeletVersion": version,
        "machineID": "",
        "operatingSystem": "linux",
        "osImage": platform.system(),
        "systemUUID": "",
    }


def _architecture() -> str:
    """Returns the machine's architecture by Go's name."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
