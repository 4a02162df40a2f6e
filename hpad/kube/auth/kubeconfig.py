"""Where the API server is: a kubeconfig or the service account of a pod. The only door to kubernetes_asyncio.

That package reads files inside coroutines, writes client keys to temporary files, and imports for a
third of a second. So it is imported here alone, where a real cluster is wanted, and runs in a thread with a loop of its
own: once to load, and again whenever credentials are due (`credentials.Identity`).
"""

import asyncio
import contextlib
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from hpad.api.text import shown
from hpad.clock import SystemClock
from hpad.kube.auth import exec_plugin, oidc
from hpad.kube.auth.credentials import ClusterConfig, ConfigError, Credentials, Identity

__all__ = ["ClusterConfig", "ConfigError", "load_cluster_config"]

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_FILES_S = 60.0  # how often tokens and certificates in files are read anew, as Kubernetes' own clients do
_PATIENCE_S = 60.0  # with a plugin, or an identity provider
_NOBODY = "hpad:nobody"
_TLS = (
    *("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"),
    *("client-certificate", "client-certificate-data"),
)
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")


def load_cluster_config(kubeconfig: str | None = None, context: str | None = None) -> ClusterConfig:
    """The cluster to work for. Blocks (files, plugins): call it in a thread where a loop is running.

    `kubeconfig` names a file; without it the files of KUBECONFIG, then ~/.kube/config, then the pod hpad runs in.
    `context` is one of the kubeconfig's, its current one by default. Raises ConfigError.
    """
    files = _files(kubeconfig)
    if files:
        return _from_kubeconfig(files, context)
    if context is not None:
        raise ConfigError(f"context {shown(context)} is asked for, but there is no kubeconfig: {_looked()}")
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return _from_pod(_SERVICE_ACCOUNT)
    raise ConfigError(f"no cluster is configured: {_looked()}; name a file with --kubeconfig")


def _files(kubeconfig: str | None) -> list[str]:
    """The kubeconfig files to merge, those that are there; a file named outright has to be there."""
    if kubeconfig is not None:
        path = Path(kubeconfig).expanduser()
        if not _is_file(path):
            raise ConfigError(f"{kubeconfig}: {'this is not a file' if path.exists() else 'no such file'}")
        return [str(path)]
    named = [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    found = [str(path) for name in named if _is_file(path := Path(name).expanduser())]
    if named and not found:
        raise ConfigError(f"KUBECONFIG names {os.pathsep.join(named)}, but no such file is there")
    home = Path.home() / ".kube" / "config"
    return found or ([str(home)] if _is_file(home) else [])


def _is_file(path: Path) -> bool:
    """Raises ConfigError where it cannot be told, as in a folder that is closed to us."""
    try:
        return path.is_file()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _looked() -> str:
    return "KUBECONFIG is not set, ~/.kube/config is not there, and hpad does not run in a pod"


@dataclass
class _Source:
    """One context of some kubeconfig files, and what is needed to read its credentials again and again."""

    files: list[str]
    context: str | None
    namespace: str = "default"
    kind: str = ""
    tokens: oidc.Tokens = field(default_factory=oidc.Tokens)
    granted: exec_plugin.Granted | None = None
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def read(self) -> Credentials:
        """The credentials as they are now. Raises ConfigError."""
        return self.open()[1]

    def open(self) -> tuple[Any, Credentials]:
        """The credentials with the Configuration they came in; `tls` is made, or brought up to date."""
        from kubernetes_asyncio.client import Configuration

        configuration = type.__call__(Configuration)  # past the shared default object
        with _temporary_folder() as folder:
            try:
                loader = self._loader(folder)
                self._apply(loader, configuration)
                self._renew_tls(configuration)
            finally:
                _forget_temporary_files()
        token = configuration.api_key.get("BearerToken", "")
        expires = self.tokens.expires if self.granted is None else _utc(self.granted.expires)
        return configuration, Credentials(token.strip(), expires)

    def _apply(self, loader: Any, configuration: Any) -> None:
        """Let the loader do its work; what it raises may hold secrets, so only paths are quoted."""
        try:
            _own_loop(loader.load_and_set(configuration))
        except TimeoutError:
            raise ConfigError(f"{self._where()}: no credentials within {_PATIENCE_S:g} seconds") from None
        except Exception as error:  # noqa: BLE001  whatever the loader or a plugin raises ends here
            harmless = str(error).startswith("File does not exist")
            said = str(error) if harmless else type(error).__name__
            raise ConfigError(
                f"{self._where()}: the credentials ({self.kind or 'user'}) cannot be read: {said}"
            ) from None

    def _renew_tls(self, configuration: Any) -> None:
        """Make the TLS context, or bring the one in use up to date: new connections take what it holds then."""
        if not configuration.host.startswith("https"):
            return
        if self.tls is None:
            self.tls = _context(configuration)
        elif configuration.ssl_ca_cert and configuration.verify_ssl:
            self.tls.load_verify_locations(configuration.ssl_ca_cert)
        if configuration.cert_file:
            try:
                self.tls.load_cert_chain(configuration.cert_file, configuration.key_file)
            except (ssl.SSLError, OSError) as error:
                raise ConfigError(f"{self._where()}: the client certificate cannot be used: {error}") from None

    def _loader(self, folder: str) -> Any:
        """kubernetes_asyncio's loader for the context, after checking what it would stumble over."""
        from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

        try:
            merged: Any = KubeConfigMerger(os.pathsep.join(self.files)).config
        except OSError as error:
            raise ConfigError(f"{error.filename or ', '.join(self.files)}: cannot be read: {error.strerror}") from None
        except Exception as error:  # noqa: BLE001  a YAML error quotes the file, which may hold secrets
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark is not None else ""
            raise ConfigError(f"{', '.join(self.files)}: not a kubeconfig{line}") from None
        self._check(merged.value)
        return KubeConfigLoader(
            config_dict=merged, active_context=self.context, config_base_path=None, temp_file_path=folder
        )

    def _check(self, merged: dict[str, Any]) -> None:
        """That the context, its cluster and its user are there and usable; raises ConfigError naming what is not."""
        name = self.context or merged.get("current-context")
        if not name:
            raise ConfigError(f"{', '.join(self.files)}: there is no current-context; name one with --context")
        self.context = name
        context = self._named(merged, "contexts", name)["context"]
        cluster = self._named(merged, "clusters", context.get("cluster"))["cluster"]
        if not cluster.get("server"):
            raise ConfigError(f"{self._where()}: the cluster {shown(context.get('cluster'))} has no server")
        if not context.get("user"):  # anonymous; the loader needs a user all the same
            context["user"] = _NOBODY
            merged["users"].append({"name": _NOBODY, "user": {}})
        user = self._named(merged, "users", context["user"])
        cluster["server"] = self._address(context.get("cluster"), cluster, user["user"])
        self.kind = next((kind for kind in ("exec", "auth-provider", "tokenFile") if kind in user["user"]), "")
        self.namespace = context.get("namespace") or "default"
        self._check_user(user["name"], user["user"])
        if "exec" in user["user"]:
            self._ask_plugin(user["user"], cluster, Path(self._file_of(merged, user["name"])).parent)

    def _address(self, name: Any, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> str:
        """The URL of the server. As with client-go, host:port alone will do: https where something speaks of TLS."""
        address = str(cluster["server"])
        if "@" in address:  # not quoted: it would stand in every error
            raise ConfigError(
                f"{self._where()}: the cluster {shown(name)} has a server with a user in its address; name a user"
            )
        if "://" not in address:
            tls = any(cluster.get(field_) for field_ in _TLS) or any(user.get(field_) for field_ in _TLS)
            address = f"{'https' if tls else 'http'}://{address}"
        try:
            url = urlsplit(address)
            good = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
        except ValueError:
            good = False
        if not good:
            raise ConfigError(
                f"{self._where()}: the cluster {shown(name)} has the server {shown(cluster['server'])}, which is "
                "not an address such as https://10.0.0.1:6443"
            )
        return address

    def _ask_plugin(self, user: dict[str, Any], cluster: dict[str, Any], folder: Path) -> None:
        """What a plugin gives becomes a plain token or certificate."""
        try:
            self.granted = exec_plugin.ask(user.pop("exec"), cluster, folder, _PATIENCE_S)
        except ConfigError as error:
            raise ConfigError(f"{self._where()}: {error}") from None
        user |= self.granted.as_user()

    def _file_of(self, merged: dict[str, Any], user: str) -> str:
        """The file that a user of the merged kubeconfigs comes from."""
        for node in merged["users"]:
            if _plain(node).get("name") == user:
                return str(getattr(node, "path", None) or self.files[0])
        return self.files[0]

    def _check_user(self, name: str, user: dict[str, Any]) -> None:
        """Refuse what the loader would pass over; what an `oidc` provider gives becomes a plain token."""
        for field_ in _IMPERSONATION:
            if user.get(field_):
                raise ConfigError(
                    f"{self._where()}: the user {shown(name)} asks for impersonation ({field_}:), which hpad does "
                    "not do; use a user of its own"
                )
        provider = user.pop("auth-provider", None) or {}
        if not provider:
            return
        told = provider.get("config") or {} if isinstance(provider, dict) else None
        if not isinstance(told, dict):
            raise ConfigError(f"{self._where()}: the user {shown(name)} has an auth-provider that is none")
        if provider.get("name") != "oidc":
            raise ConfigError(
                f"{self._where()}: the user {shown(name)} has the auth-provider {shown(provider.get('name'))}; "
                "Kubernetes has dropped all but oidc, use an exec plugin"
            )
        try:
            settings = {key: str(value) for key, value in told.items() if value is not None}
            self.tokens = oidc.current(settings, self.tokens, SystemClock().now())
        except ConfigError as error:
            raise ConfigError(f"{self._where()}: oidc: {error}") from None
        user["token"] = self.tokens.id_token

    def _named(self, merged: dict[str, Any], section: str, name: Any) -> dict[str, Any]:
        """The entry, whose content (under `user` among the users, and so on) is a mapping. Raises ConfigError."""
        entries = [_plain(node) for node in merged.get(section) or ()]
        for number, entry in enumerate(entries):
            if not isinstance(entry, dict):
                raise ConfigError(f"{self._where()}: {section}[{number}] is no mapping with a name")
        found: dict[str, Any] | None = next((entry for entry in entries if entry.get("name") == name), None)
        if found is not None:
            kind = section.removesuffix("s")
            found[kind] = found.get(kind) or {}
            if not isinstance(found[kind], dict):
                raise ConfigError(f"{self._where()}: the {kind} {shown(name)} is no mapping")
            return found
        known = ", ".join(shown(entry.get("name")) for entry in entries)
        raise ConfigError(f"{self._where()}: no {shown(name)} among the {section}; there is {known or 'none'}")

    def _where(self) -> str:
        return f"{', '.join(self.files)}, context {shown(self.context)}"

    def every(self) -> float | None:
        """How often to read anew: never for what cannot change but by its own expiry."""
        return None if self.kind == "exec" else _FILES_S


def _from_kubeconfig(files: list[str], context: str | None) -> ClusterConfig:
    source = _Source(files, context)
    configuration, credentials = source.open()
    return ClusterConfig(
        server=configuration.host,
        ssl=source.tls,
        identity=Identity(credentials, source.read, source.every()),
        tls_server_name=configuration.tls_server_name,
        proxy=_proxy(configuration.host, configuration.proxy),
        namespace=source.namespace,
        source=f"{', '.join(files)}, context {source.context}",
        certified=bool(configuration.cert_file),
    )


def _from_pod(folder: Path) -> ClusterConfig:
    """The API server of the pod's own cluster, as its service account."""
    configuration = _pod_configuration(folder)
    namespace = folder / "namespace"
    return ClusterConfig(
        server=configuration.host,
        ssl=_context(configuration),
        identity=Identity(
            _pod_credentials(configuration), lambda: _pod_credentials(_pod_configuration(folder)), _FILES_S
        ),
        proxy=_proxy(configuration.host, None),
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        source="the service account of the pod",
    )


def _pod_configuration(folder: Path) -> Any:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import ConfigException, load_incluster_config

    configuration = type.__call__(Configuration)
    try:
        load_incluster_config(  # type: ignore[no-untyped-call]  # that package has no annotations here
            client_configuration=configuration,
            token_filename=str(folder / "token"),
            cert_filename=str(folder / "ca.crt"),
        )
    except (ConfigException, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{folder}: the pod's service account cannot be used: {error}") from None
    return configuration


def _pod_credentials(configuration: Any) -> Credentials:
    return Credentials(configuration.api_key.get("BearerToken", "").strip())


def _context(configuration: Any) -> ssl.SSLContext:
    """TLS as Kubernetes' own clients do it: the cluster's CA, or the system's; no stricter rules of newer Pythons."""
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"{configuration.host}: its certificate authority cannot be used: {error}") from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _proxy(host: str, configured: str | None) -> str | None:
    """The kubeconfig's proxy, or the environment's (HTTPS_PROXY, NO_PROXY), read once. Raises ConfigError.

    The environment's is for other machines alone, as for client-go (net/http, ProxyFromEnvironment).
    """
    url = urlsplit(host)
    proxies: Mapping[str, str] = getproxies()
    passed_by = _is_this_machine(url.hostname or "") or proxy_bypass(url.netloc)
    chosen = configured or (None if passed_by else proxies.get(url.scheme))
    if not chosen:
        return None
    scheme = chosen.partition(":")[0]
    if scheme not in {"http", "https"}:
        raise ConfigError(f"proxy {scheme}://…: only http and https proxies can be used")
    try:
        told = urlsplit(chosen)
        good = bool(told.hostname) and told.port != 0
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"proxy {scheme}://…: that is not an address such as http://proxy.example:3128")
    return chosen


def _is_this_machine(name: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost"


def _plain(node: Any) -> Any:
    """An entry of merged kubeconfigs, without the note of the file that it comes from."""
    return getattr(node, "value", node)


@contextlib.contextmanager
def _temporary_folder() -> Iterator[str]:
    """Raises ConfigError where there can be none: the disk is full, say. What cannot be removed is left."""
    try:
        held = tempfile.TemporaryDirectory(prefix="hpad-", ignore_cleanup_errors=True)
    except OSError as error:
        raise ConfigError(f"there is no room for a temporary folder: {error.strerror}") from None
    with held as folder:
        yield folder


def _own_loop(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run what blocks inside a coroutine where that harms nobody: in a loop of its own, in a thread of its own."""
    with ThreadPoolExecutor(1, thread_name_prefix="hpad-credentials") as pool:
        pool.submit(asyncio.run, asyncio.wait_for(coroutine, _PATIENCE_S)).result()


def _forget_temporary_files() -> None:
    """Remove the copies of keys and certificates the loader made; it would keep them until the process ends."""
    from kubernetes_asyncio.config import kube_config

    kube_config._cleanup_temp_files()


def _utc(moment: Any) -> datetime | None:
    return moment.astimezone(UTC) if isinstance(moment, datetime) else None
