"""One context of kubeconfig files: checks it, and reads the server, the credentials and the TLS settings from it.

The loader of kubernetes_asyncio merges the files and decodes certificates. It blocks, and writes client keys to
temporary files: so it is imported only when a kubeconfig is read, and called outside the event loop. Errors quote paths
and names, never file contents.
"""

import contextlib
import os
import ssl
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

import yaml

from hpad import files
from hpad.api.loopback import names_loopback
from hpad.api.text import shown
from hpad.kube.auth import exec_plugin
from hpad.kube.auth.credentials import ConfigError, Credentials
from hpad.kube.auth.library import library

REREAD_S = 60.0
"""Seconds between two readings of tokens and certificates in files, as in client-go (transport/token_source.go)."""
_TIMEOUT_S = 60.0  # for an exec plugin
_ANONYMOUS = "hpad:anonymous"
_AUTHORITY = ("certificate-authority", "certificate-authority-data")
_INSECURE = "insecure-skip-tls-verify"
"""The only field of another type than text, an object or a list."""
_TLS_FIELDS = (*_AUTHORITY, _INSECURE, "client-certificate", "client-certificate-data")
_FILE_FIELDS = {
    "certificate-authority": "certificate-authority-data",
    "client-certificate": "client-certificate-data",
    "client-key": "client-key-data",
}
"""Fields of clusters and users that name a file, each with the field that takes precedence over it."""
_PAIR = ("certificate", "key")
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")


class _Entry(NamedTuple):
    """A context, cluster or user; `content` is the mapping inside the merged kubeconfig, `file` where it comes from."""

    name: Any
    content: dict[str, Any]
    file: str


@dataclass
class KubeContext:
    """One context of the kubeconfig `files`; None is the current context. Reads its credentials repeatedly."""

    files: list[str]
    context: str | None
    namespace: str = "default"
    has_plugin: bool = False
    plugin_credentials: exec_plugin.PluginCredentials | None = None
    unsent: bool = False
    """Whether there are credentials that are not sent, because the server is asked without TLS."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def read(self) -> Credentials:
        """Reads the current credentials. Raises ConfigError."""
        return self.open()[1]

    def open(self) -> tuple[Any, Credentials]:
        """Returns the loader's Configuration and the credentials; creates or updates `tls`. Raises ConfigError."""
        loaders = library()
        configuration = type.__call__(loaders.Configuration)  # bypasses the shared default object
        with _temporary_folder() as folder:
            try:
                loader = self._loader(folder)
                self._load(loader, configuration)
                self._update_tls(configuration)
            finally:
                # The loader would keep its copies of keys and certificates until the process ends.
                loaders.kube_config._cleanup_temp_files()
        token = configuration.api_key.get("BearerToken", "")
        expires = None if self.plugin_credentials is None else self.plugin_credentials.expiration_timestamp
        try:
            return configuration, Credentials(token.strip(), expires)
        except ConfigError as error:
            self._fail(str(error))

    def _fail(self, problem: str) -> NoReturn:
        raise ConfigError(f"{', '.join(self.files)}, context {shown(self.context)}: {problem}") from None

    def _load(self, loader: Any, configuration: Any) -> None:
        """Runs the loader. Its errors may quote secrets, so only their type is reported."""
        try:
            loader.load_and_set(configuration).send(None)  # never waits: plugins ran before, there is no auth-provider
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001  # any error of the loader
            self._fail(f"the credentials cannot be read: {type(error).__name__}")

    def _update_tls(self, configuration: Any) -> None:
        """Creates the TLS context, or loads renewed certificates into it: new connections use them."""
        if not configuration.host.startswith("https"):
            return
        if self.tls is None:
            self.tls = tls_context(configuration)
        elif configuration.ssl_ca_cert and configuration.verify_ssl:
            self.tls.load_verify_locations(configuration.ssl_ca_cert)
        if configuration.cert_file:
            try:
                self.tls.load_cert_chain(configuration.cert_file, configuration.key_file, self._refuse_encrypted_key)
            except (ssl.SSLError, OSError) as error:
                hint = "" if configuration.key_file else "; there is no client-key"
                self._fail(f"the client certificate cannot be used: {error}{hint}")

    def _refuse_encrypted_key(self) -> NoReturn:
        """Fails in place of OpenSSL's question for the password, which would wait for an answer on the terminal."""
        self._fail("the client key is encrypted, and a kubeconfig holds no password for it: write the key without one")

    def _loader(self, folder: str) -> Any:
        """Returns the loader of kubernetes_asyncio for this context, after checks with better errors than its own."""
        loaders = library().kube_config
        try:
            files = [file for file in self.files if _has_content(file)]
            if not files:
                raise ConfigError(f"{', '.join(self.files)}: has no content")
            merger = loaders.KubeConfigMerger(os.pathsep.join(files))
        except ConfigError:
            raise
        except OSError as error:
            raise ConfigError(f"{error.filename or ', '.join(self.files)}: cannot be read: {error.strerror}") from None
        except Exception:  # noqa: BLE001  # such as an entry without a name; its text may quote the file
            raise ConfigError(f"{', '.join(self.files)}: not a kubeconfig") from None
        for file, content in merger.config_files.items():
            _refuse_repeated_names(file, content)
        merged: Any = merger.config
        # The merger lets the last file win; in client-go the first one does (clientcmd/loader.go: Load).
        current = (each.get("current-context") for each in merger.config_files.values())
        merged.value["current-context"] = next(filter(None, current), None)
        self._prepare(merged.value)
        return loaders.KubeConfigLoader(
            config_dict=merged, active_context=self.context, config_base_path=None, temp_file_path=folder
        )

    def _prepare(self, merged: dict[str, Any]) -> None:
        """Checks the context, its cluster and its user, and completes them for the loader. Raises ConfigError."""
        name = self.context or merged.get("current-context")
        if not name:
            raise ConfigError(f"{', '.join(self.files)}: there is no current-context; name one with --context")
        self.context = name
        context = self._entry(merged, "contexts", name).content
        self.namespace = context.get("namespace") or "default"
        if not context.get("user"):  # anonymous, but the loader requires a user
            context["user"] = _ANONYMOUS
            merged["users"].append({"name": _ANONYMOUS, "user": {}})
        cluster = self._entry(merged, "clusters", context.get("cluster"))
        user = self._entry(merged, "users", context["user"])
        cluster.content["server"] = self._address(cluster, user.content)
        if _is_in_clear(cluster.content):
            self._withhold(user)
        self._check_cluster(cluster)
        self._check_user(user)
        self._resolve_files(cluster)
        self._resolve_files(user)
        self._take_token(user)
        self.has_plugin = user.content.get("exec") is not None
        if self.has_plugin:
            self._run_plugin(user, cluster)

    def _withhold(self, user: _Entry) -> None:
        """Removes the credentials: without TLS they are sent to this machine only.

        Source: client-go, tools/clientcmd/client_config.go: ClientConfig (IsConfigTransportTLS), also for loopback.
        """
        self.unsent = bool(user.content)
        user.content.clear()

    def _take_token(self, user: _Entry) -> None:
        """Puts the token that counts into `token`, and removes a plugin that is not needed.

        A token in a file counts before one in the kubeconfig while it can be read, and both before a plugin, as do user
        and password, and a client certificate.
        Source: client-go, transport/token_source.go; plugin/pkg/client/auth/exec: UpdateTransportConfig.
        """
        named = user.content.pop("tokenFile", None)
        if named:
            path = _folder(user) / str(named)
            token = _read_token(path)
            if not token and not user.content.get("token"):
                why = "cannot be read, is empty, or is larger than 1 MiB" if path.exists() else "no such file"
                self._fail(f"tokenFile: {path}: {why}")
            user.content["token"] = token or user.content["token"]
        names = ("username", "password")
        if any(user.content.get(name) for name in names):
            user.content.update({name: user.content.get(name) or "" for name in names})
        certified = all(user.content.get(f"client-{name}") or user.content.get(f"client-{name}-data") for name in _PAIR)
        others = certified or any(user.content.get(name) for name in ("token", *names))
        if user.content.get("exec") is None or others:
            user.content.pop("exec", None)

    def _address(self, cluster: _Entry, user: Mapping[str, Any]) -> str:
        """Returns the URL of the server; host:port means https if TLS is configured.

        Source: client-go, rest/url_utils.go: DefaultServerURL.
        """
        configured = cluster.content.get("server")
        if not configured:
            self._fail(f"the cluster {shown(cluster.name)} has no server")
        address = str(configured)
        if "@" in address:  # not quoted: the error would show the password
            self._fail(f"the cluster {shown(cluster.name)} has a server with a user in its address; name a user")
        if "://" not in address:
            tls = any(cluster.content.get(name) or user.get(name) for name in _TLS_FIELDS)
            address = f"{'https' if tls else 'http'}://{address}"
        if not is_address(address):
            self._fail(
                f"the cluster {shown(cluster.name)} has the server {shown(configured)}, which is "
                "not an address such as https://10.0.0.1:6443"
            )
        scheme, separator, rest = address.partition("://")
        return f"{scheme.lower()}{separator}{rest}"  # the loader knows "https" in small letters alone

    def _check_cluster(self, cluster: _Entry) -> None:
        """Refuses text in place of a boolean, which the loader takes for true, and an authority that would not count.

        Source: client-go, transport/transport.go: TLSConfigFor.
        """
        insecure = cluster.content.get(_INSECURE, False)
        if not isinstance(insecure, bool):
            problem = "has an insecure-skip-tls-verify that is neither true nor false"
            self._fail(f"the cluster {shown(cluster.name)} {problem}")
        for name in _AUTHORITY if insecure else ():
            if cluster.content.get(name):
                problem = f"has a {name}, which insecure-skip-tls-verify: true would ignore: remove one of them"
                self._fail(f"the cluster {shown(cluster.name)} {problem}")

    def _check_user(self, user: _Entry) -> None:
        """Refuses fields that the loader ignores, and auth-providers."""
        for name in _IMPERSONATION:
            if user.content.get(name):
                self._fail(
                    f"the user {shown(user.name)} is configured for impersonation ({name}:), which hpad "
                    "does not support; use a user with rights of its own"
                )
        provider = user.content.pop("auth-provider", None)
        if provider:
            named = shown(provider.get("name") if isinstance(provider, dict) else provider)
            raise ConfigError(
                f"{user.file}: the user {shown(user.name)} has the auth-provider {named}, which hpad does not support; "
                "use an exec plugin instead, such as kubectl oidc-login for OpenID Connect"
            )

    def _resolve_files(self, entry: _Entry) -> None:
        """Makes paths absolute: relative ones start at the folder of the entry's own file, as in client-go."""
        for name, preferred in _FILE_FIELDS.items():
            if entry.content.get(name) and not entry.content.get(preferred):
                path = _folder(entry) / str(entry.content[name])
                if not path.is_file():
                    self._fail(f"{name}: {path}: no such file")
                entry.content[name] = str(path)

    def _run_plugin(self, user: _Entry, cluster: _Entry) -> None:
        """Replaces `exec` by the token or the certificate from the plugin."""
        try:
            spec = user.content.pop("exec")
            self.plugin_credentials = exec_plugin.run(spec, cluster.content, _folder(user), _TIMEOUT_S)
        except ConfigError as error:
            self._fail(str(error))
        user.content.update(self.plugin_credentials.as_user())

    def _entry(self, merged: dict[str, Any], section: str, name: Any) -> _Entry:
        """Returns the entry with that name in "contexts", "clusters" or "users". Raises ConfigError."""
        kind, known = section.removesuffix("s"), []
        for number, node in enumerate(merged.get(section) or ()):
            entry = getattr(node, "value", node)  # the loader wraps entries in nodes that know their file
            if not isinstance(entry, dict):
                self._fail(f"{section}[{number}] is no mapping with a name")
            if entry.get("name") == name:
                entry[kind] = entry.get(kind) or {}
                if not isinstance(entry[kind], dict):
                    self._fail(f"the {kind} {shown(name)} is no mapping")
                entry[kind] = {field: each for field, each in entry[kind].items() if _is_set(field, each)}
                return _Entry(name, entry[kind], str(getattr(node, "path", None) or self.files[0]))
            known.append(shown(entry.get("name")))
        self._fail(f"there is no {shown(name)} among the {section}: {', '.join(known) or 'none'}")


def _is_set(field: str, value: object) -> bool:
    """Returns whether a field counts: for Go, null and empty text are the same as an absent field."""
    return value is not None and (value != "" or field == _INSECURE)


def _is_in_clear(cluster: Mapping[str, Any]) -> bool:
    """Returns whether requests leave this machine without TLS, to the server or to a proxy."""
    server, proxy = cluster["server"], cluster.get("proxy-url")
    return urlsplit(server).scheme == "http" and not all(map(names_loopback, (server, str(proxy or server))))


def _folder(entry: _Entry) -> Path:
    """Returns the folder of an entry's file, at which its relative paths start."""
    return Path(entry.file).absolute().parent


def _has_content(file: str) -> bool:
    """Returns whether a kubeconfig is more than empty, as kubectl allows it. Raises OSError and ConfigError."""
    content = Path(file).read_bytes()
    try:
        found = yaml.safe_load(content)
    except Exception as error:  # noqa: BLE001  # a YAML error quotes the file, which may contain secrets
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{file}: not a kubeconfig{line}") from None
    if not isinstance(found, dict | None):
        raise ConfigError(f"{file}: not a kubeconfig")
    return found is not None


def _refuse_repeated_names(file: str, content: Mapping[str, Any]) -> None:
    """Raises ConfigError for a name that two entries of a file have; among files, that of the first one counts.

    Source: client-go, tools/clientcmd/api/v1/conversion.go: Convert_Slice_v1_NamedContext_To_Map.
    """
    for section in ("contexts", "clusters", "users"):
        named = (entry for entry in content.get(section) or () if isinstance(entry, dict))
        names = Counter(str(entry.get("name")) for entry in named)
        for name in (name for name, count in names.items() if count > 1):
            raise ConfigError(f"{file}: several {section} have the name {shown(name)}: remove all but one")


def _read_token(path: Path) -> str:
    """Returns the token in a file; "" if it cannot be read."""
    try:
        return files.content(path, 1 << 20).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def tls_context(configuration: Any) -> ssl.SSLContext:
    """Creates a TLS context with the cluster's CA or the system's. Raises ConfigError."""
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    except (ssl.SSLError, OSError) as error:
        field = "its certificate authority (certificate-authority or certificate-authority-data) cannot be used"
        raise ConfigError(f"{configuration.host}: {field}: {error}") from None
    # Since Python 3.13 this flag is on by default: it refuses CAs without key identifiers, which Go accepts.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def is_address(text: str) -> bool:
    """Returns whether the text is an http or https URL with a host and a valid port."""
    try:
        url = urlsplit(text)
        return url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


@contextlib.contextmanager
def _temporary_folder() -> Iterator[str]:
    """Creates a folder for the time of the block. Raises ConfigError if that fails, as on a full disk."""
    try:
        created = tempfile.TemporaryDirectory(prefix="hpad-", ignore_cleanup_errors=True)
    except OSError as error:
        raise ConfigError(f"no temporary folder can be created: {error.strerror}") from None
    with created as folder:
        yield folder
