"""Runs exec plugins for credentials (client.authentication.k8s.io/v1 and v1beta1), as kubectl does.

kubernetes_asyncio supports neither `provideClusterInfo` nor the expiry of certificates. Calls block. Errors quote the
standard error of a plugin, never its standard output.
"""

import base64
import os
import subprocess
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from hpad.api.text import shown
from hpad.kube.auth.credentials import ConfigError
from hpad.kube.errors import UNREADABLE

VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXTENSION = "client.authentication.k8s.io/exec"
_QUOTED = 500  # characters of the standard error of a failed plugin, from its end
# Fields of a cluster that a plugin receives (KEP-541).
_CLUSTER_FIELDS = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")


class PluginCredentials(msgspec.Struct, frozen=True, rename="camel"):
    """The status in a plugin's answer: a token, a certificate with its key (PEM), or both. Null is absent, as in Go."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None

    def __repr__(self) -> str:
        return f"PluginCredentials(expiration_timestamp={self.expiration_timestamp})"  # without the secrets

    def as_user(self) -> dict[str, str]:
        """Returns the credentials as fields of a kubeconfig's user."""
        user = {"token": self.token} if self.token else {}
        if self.client_certificate_data and self.client_key_data:
            pairs = {"client-certificate-data": self.client_certificate_data, "client-key-data": self.client_key_data}
            user |= {name: base64.b64encode(text.encode()).decode() for name, text in pairs.items()}
        return user


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: PluginCredentials


def run(spec: Mapping[str, Any], cluster: Mapping[str, Any], folder: Path, timeout: float) -> PluginCredentials:
    """Runs the plugin in a user's `exec` for at most `timeout` seconds; `folder` is that of the kubeconfig.

    Raises ConfigError.
    """
    version, command = _checked(spec)
    info_spec: dict[str, Any] = {"interactive": False}
    if spec.get("provideClusterInfo"):
        info_spec["cluster"] = _cluster(cluster, folder)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": info_spec}
    more = {str(each["name"]): _text(each["value"]) for each in spec.get("env") or ()}
    environ = {**os.environ, **more, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
    # A relative path starts at the kubeconfig's folder, a bare name is searched in PATH, as in client-go.
    program = str(folder / command) if os.sep in command else command
    return _read(command, version, _output([program, *map(_text, spec.get("args") or ())], environ, timeout, spec))


def _text(value: Any) -> str:
    """Returns a text of the kubeconfig; "" for null, as in Go."""
    return "" if value is None else str(value)


def _checked(spec: Mapping[str, Any]) -> tuple[str, str]:
    if not isinstance(spec, Mapping):
        raise ConfigError("exec: this is no mapping with a command")
    version, command = spec.get("apiVersion"), spec.get("command")
    if version not in VERSIONS:
        raise ConfigError(f"exec: apiVersion {shown(version)} is none of {', '.join(VERSIONS)}")
    if not isinstance(command, str) or not command:
        raise ConfigError("exec: there is no command")
    if spec.get("interactiveMode") == "Always":
        raise ConfigError(f"exec: {command} needs a terminal (interactiveMode: Always), which hpad does not have")
    if not isinstance(spec.get("args") or [], list):
        raise ConfigError("exec: args is no list")
    env = spec.get("env") or []
    if not isinstance(env, list) or not all(isinstance(each, Mapping) and {"name", "value"} <= {*each} for each in env):
        raise ConfigError("exec: env is no list of variables with a name and a value each")
    return version, command


def _cluster(cluster: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Returns the cluster for the plugin: the certificate authority as data, and `config` from the extension."""
    info = {name: cluster[name] for name in _CLUSTER_FIELDS if cluster.get(name)}
    data, file = cluster.get("certificate-authority-data"), cluster.get("certificate-authority")
    if not data and file:
        try:
            data = base64.b64encode((folder / file).read_bytes()).decode()
        except OSError as error:
            raise ConfigError(f"certificate-authority: {folder / file}: {error.strerror}") from None
    if data:
        info["certificate-authority-data"] = data
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == _EXTENSION:
            info["config"] = extension.get("extension")
    return info


def _output(command: list[str], environ: Mapping[str, str], timeout: float, spec: Mapping[str, Any]) -> bytes:
    try:
        done = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"exec: {command[0]} did not end within {timeout:g} seconds") from None
    except ValueError as error:  # such as a zero byte
        raise ConfigError(f"exec: {command[0]} cannot be run: {error}") from None
    except OSError as error:
        hint = f"; {spec['installHint']}" if spec.get("installHint") else ""
        raise ConfigError(f"exec: {command[0]} cannot be run: {error.strerror}{hint}") from None
    if done.returncode:
        text = done.stderr.decode("utf-8", "replace").strip()[-_QUOTED:]
        raise ConfigError(f"exec: {command[0]} failed ({done.returncode}): {text or 'no message'}")
    return done.stdout


def _read(command: str, version: str, output: bytes) -> PluginCredentials:
    try:
        answer = msgspec.json.decode(output, type=_Answer)
    except UNREADABLE as error:
        raise ConfigError(f"exec: {command} did not print an ExecCredential: {error}") from None
    status = answer.status
    if (answer.api_version, answer.kind) != (version, "ExecCredential"):
        raise ConfigError(f"exec: {command} answered with {answer.kind} of {answer.api_version} instead of {version}")
    if not status.token and not status.client_certificate_data:
        raise ConfigError(f"exec: {command} returned neither a token nor a client certificate")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ConfigError(f"exec: {command} returned a client certificate without a key, or a key without one")
    return status
