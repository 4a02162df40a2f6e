"""Runs a real kube-apiserver with its etcd on loopback, without kubelet and controllers."""

import base64
import json
import os
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

BINARIES = ("etcd", "kube-apiserver")
_START_TIMEOUT = 60.0


@dataclass(frozen=True)
class Running:
    """A running API server: its URL, the kubeconfig of an administrator, and the URL of its etcd.

    `token` is the administrator's, `authority` the file of the CA, and `pids` the processes by program. `restart` stops
    the API server, starts it again on the same etcd, and blocks until it is ready.
    """

    url: str
    kubeconfig: Path
    etcd: str
    restart: Callable[[], None]
    token: str
    authority: Path
    pids: Mapping[str, int]

    def compact(self) -> None:
        """Compacts etcd to its newest revision; blocks. An API server may still answer from its watch caches."""
        newest = self._etcd("range", {"key": base64.b64encode(b"/").decode()})["header"]["revision"]
        self._etcd("compaction", {"revision": newest, "physical": True})

    def _etcd(self, call: str, body: dict[str, Any]) -> Any:
        """Calls etcd's JSON gateway."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.etcd}/v3/kv/{call}", data=json.dumps(body).encode(), timeout=10) as answer:
            return json.load(answer)


def missing(*more: str) -> str | None:
    """Returns why the API server (and the programs `more`) cannot be started here, None if they can."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return f"KUBEBUILDER_ASSETS names no folder with {' and '.join((*BINARIES, *more))}"
    absent = [name for name in (*BINARIES, *more) if not os.access(Path(folder) / name, os.X_OK)]
    return f"{folder} (KUBEBUILDER_ASSETS) lacks {' and '.join(absent)}" if absent else None


@contextmanager
def start(folder: Path, flags: Sequence[str] = ()) -> Iterator[Running]:
    """Starts etcd and kube-apiserver with further `flags`, and stops them with the context; blocks."""
    binaries = Path(os.environ["KUBEBUILDER_ASSETS"])
    authority, token = trustme.CA(), secrets.token_hex(16)
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    certificate = authority.issue_cert("127.0.0.1", "localhost", "10.0.0.1")
    certificate.private_key_pem.write_to_path(str(folder / "server.key"))
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(str(folder / "server.crt"), append=True)
    _write_service_account_key(folder / "sa.key")
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n', encoding="utf-8")
    client, peer, secure = free_ports(3)
    with ExitStack() as stack:
        etcd = process([str(binaries / "etcd"), *_etcd(folder, client, peer)], folder / "etcd.log")
        pids = {"etcd": stack.enter_context(etcd).pid}
        command = [str(binaries / "kube-apiserver"), *_apiserver(folder, client, secure), *flags]
        url, serving = f"https://127.0.0.1:{secure}", stack.enter_context(ExitStack())

        def serve() -> None:
            serving.close()
            server = serving.enter_context(process(command, folder / "kube-apiserver.log"))
            pids["kube-apiserver"] = server.pid
            _wait(server, f"{url}/readyz", token, folder)

        serve()
        kubeconfig = _write_kubeconfig(folder, url, authority, token)
        yield Running(url, kubeconfig, f"http://127.0.0.1:{client}", serve, token, folder / "ca.crt", pids)


def _etcd(folder: Path, client: int, peer: int) -> list[str]:
    return [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=default=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync",
    ]


def _apiserver(folder: Path, etcd: int, secure: int) -> list[str]:
    """Returns the flags: the token is that of an administrator, and pods need no service account."""
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={secure}",
        f"--cert-dir={folder}",
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'sa.key'}",
        f"--service-account-signing-key-file={folder / 'sa.key'}",
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
        "--allow-privileged=false",
    ]


def _write_service_account_key(path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _write_kubeconfig(folder: Path, url: str, authority: trustme.CA, token: str) -> Path:
    trusted = base64.b64encode(authority.cert_pem.bytes()).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": {"server": url, "certificate-authority-data": trusted}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "admin"}}],
        "current-context": "real",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@contextmanager
def process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program with its output in a file, and stops it with the context; blocks."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(process: subprocess.Popen[bytes], url: str, token: str, folder: Path) -> None:
    """Waits until `url` answers 200; raises RuntimeError with the end of the log."""
    trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with opener.open(request, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)
    log = (folder / "kube-apiserver.log").read_text(encoding="utf-8", errors="replace")[-2000:]
    raise RuntimeError(f"kube-apiserver is not ready within {_START_TIMEOUT:g} s (exit {process.poll()}):\n{log}")


def free_ports(count: int) -> list[int]:
    """Returns free ports of loopback."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
