"""Tells which service hosts a control plane, whose flags no user can set, from what its API server says.

The version tells it (`v1.33.1-eks-595af52`; `-eks-1-33-12` is EKS Distro, whose flags users set), or the host of the
API server. To a pod, whose API server is kubernetes.default.svc, the issuer of ServiceAccount tokens tells it: every
ServiceAccount may read that (ClusterRole system:service-account-issuer-discovery).
"""

import re
from typing import Final
from urllib.parse import urlsplit

import msgspec

from hpad.kube import access, errors
from hpad.kube.client import Client

_ISSUER: Final = "/.well-known/openid-configuration"
_VERSIONS: Final = (
    ("EKS", re.compile(r"-eks-[0-9a-f]{7,}$")),
    ("GKE", re.compile(r"-gke\.")),
    ("ACK", re.compile(r"-aliyun\.")),
    ("TKE", re.compile(r"-tke\.")),
    ("IBM Cloud Kubernetes Service", re.compile(r"\+IKS$")),
)
_HOSTS: Final = (
    ("AKS", (".azmk8s.io", ".azmk8s.us", ".oic.prod-aks.azure.com")),
    ("EKS", (".eks.amazonaws.com", ".eks.amazonaws.com.cn")),
    ("GKE", ("container.googleapis.com", ".gke.goog")),
    ("DigitalOcean Kubernetes", (".k8s.ondigitalocean.com",)),
)


class _Issuer(msgspec.Struct):
    issuer: str = ""


async def service(client: Client) -> str:
    """Returns the name of the service that hosts this server; "" if none is known. Never raises."""
    try:
        version = (await access.probe_version(client)).version
    except errors.ApiError:
        return ""
    by_version = next((name for name, form in _VERSIONS if form.search(version)), "")
    return by_version or _of_host(client.config.server) or _of_host(await _issuer(client))


def _of_host(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return next((name for name, ends in _HOSTS if host.endswith(ends)), "")


async def _issuer(client: Client) -> str:
    try:
        return msgspec.json.decode(await client.request("GET", _ISSUER), type=_Issuer).issuer
    except (errors.ApiError, *errors.UNREADABLE):
        return ""
