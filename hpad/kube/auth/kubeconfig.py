"""Finds the API server: in a kubeconfig, or by the service account of the pod that hpad runs in."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import structlog

from hpad.api.loopback import names_loopback
from hpad.api.text import shown
from hpad.kube.auth.context import REREAD_S, KubeContext, is_address, tls_context
from hpad.kube.auth.credentials import ClusterConfig, ConfigError, Credentials, Identity
from hpad.kube.auth.library import library

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_SEARCHED = "KUBECONFIG is not set, ~/.kube/config does not exist, and hpad does not run in a pod"


_TUNNEL = (
    "; open a tunnel instead, such as `ssh -L 6443:SERVER:6443 HOST`, and write into the cluster, without the proxy, "
    "server: https://127.0.0.1:6443 and tls-server-name: SERVER"
)


class NoConfigError(ConfigError):
    """Neither the settings nor the environment name a cluster."""


def load_cluster_config(kubeconfig: str | None = None, context: str | None = None) -> ClusterConfig:
    """Finds the API server to connect to. Blocks (files, plugins): call it in a thread if an event loop is running.

    `kubeconfig` names a file; by default the files of KUBECONFIG, then ~/.kube/config, then the service account of the
    pod. `context` names a context of the kubeconfig, by default the current one. Raises ConfigError.
    """
    files = _files(kubeconfig)
    if files:
        return _from_kubeconfig(KubeContext(files, context))
    if context is not None:
        raise NoConfigError(f"there is no kubeconfig with the context {shown(context)}: {_SEARCHED}")
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return _from_pod(_SERVICE_ACCOUNT)
    raise NoConfigError(f"no cluster is configured: {_SEARCHED}; name a file with --kubeconfig")


def _files(kubeconfig: str | None) -> list[str]:
    """Returns the existing kubeconfig files, to be merged. A file named by `kubeconfig` must exist."""
    if kubeconfig is not None:
        path = Path(kubeconfig).expanduser()
        if not _is_file(path):
            raise ConfigError(f"{kubeconfig}: {'this is not a file' if path.exists() else 'no such file'}")
        return [str(path)]
    named = [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    found = [str(path) for name in named if _is_file(path := Path(name).expanduser())]
    if named and not found:
        raise ConfigError(f"KUBECONFIG names {os.pathsep.join(named)}, but no such file exists")
    home = Path.home() / ".kube" / "config"
    return found or ([str(home)] if _is_file(home) else [])


def _is_file(path: Path) -> bool:
    """Returns whether the path is a file. Raises ConfigError if the folder cannot be read."""
    try:
        return path.is_file()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _from_kubeconfig(source: KubeContext) -> ClusterConfig:
    configuration, credentials = source.open()
    if source.unsent:
        structlog.get_logger("hpad.kube").warning(
            "the credentials of the kubeconfig are not sent: the server is asked without TLS", server=configuration.host
        )
    every = None if source.has_plugin else REREAD_S  # running a plugin may open a login page, so only on expiry
    return ClusterConfig(
        server=configuration.host,
        ssl=source.tls,
        identity=Identity(credentials, source.read, every),
        tls_server_name=configuration.tls_server_name,
        proxy=_proxy(configuration.host, configuration.proxy),
        namespace=source.namespace,
        source=f"{', '.join(source.files)}, context {source.context}",
        certified=bool(configuration.cert_file),
    )


def _from_pod(folder: Path) -> ClusterConfig:
    """Returns the API server of the pod's cluster, with the credentials of its service account."""
    configuration, credentials = _service_account(folder)
    namespace = folder / "namespace"
    return ClusterConfig(
        server=configuration.host,
        ssl=tls_context(configuration),
        identity=Identity(credentials, lambda: _service_account(folder)[1], REREAD_S),
        proxy=_proxy(configuration.host, None),
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        source="the service account of the pod",
    )


def _service_account(folder: Path) -> tuple[Any, Credentials]:
    loaders = library()
    configuration = type.__call__(loaders.Configuration)  # bypasses the shared default object
    try:
        loaders.incluster_config.load_incluster_config(
            client_configuration=configuration,
            token_filename=str(folder / "token"),
            cert_filename=str(folder / "ca.crt"),
        )
    except (loaders.ConfigException, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{folder}: the pod's service account cannot be used: {error}") from None
    return configuration, Credentials(configuration.api_key.get("BearerToken", "").strip())


def _proxy(host: str, configured: str | None) -> str | None:
    """Returns the proxy of the kubeconfig, else of HTTPS_PROXY and NO_PROXY. Raises ConfigError.

    As in Go (net/http: ProxyFromEnvironment), loopback addresses do not use the proxy of the environment.
    """
    url = urlsplit(host)
    proxies: Mapping[str, str] = getproxies()
    bypassed = names_loopback(host) or proxy_bypass(url.netloc)
    field, chosen = (
        ("proxy-url", configured) if configured else ("proxy", None if bypassed else proxies.get(url.scheme))
    )
    if not chosen:
        return None
    if not configured and "://" not in chosen:
        chosen = f"http://{chosen}"  # as in Go (golang.org/x/net, http/httpproxy: parseProxy)
    scheme, separator, _ = chosen.partition("://")
    if separator and scheme not in {"http", "https"}:  # errors do not quote it, because it may contain a password
        raise ConfigError(f"{field} {scheme}://…: only http and https proxies can be used{_TUNNEL}")
    if not is_address(chosen):
        raise ConfigError(f"{field}: this is not an address such as http://proxy.example:3128")
    return chosen
