"""Writes kubeconfigs for the embedded cluster."""

import base64
import json
from pathlib import Path

NAME = "hpad-lab"


def write(path: Path, url: str, token: str | None = None, authority: Path | None = None) -> None:
    """Writes a kubeconfig as JSON, which is YAML. Blocks: call it in a thread inside a coroutine.

    `authority` is a file with the certificate of the server's CA. kubectl sends a token over TLS only.
    """
    trust = {"certificate-authority-data": base64.b64encode(authority.read_bytes()).decode()} if authority else {}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": url, **trust}}],
        "users": [{"name": NAME, "user": {} if token is None else {"token": token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
        "current-context": NAME,
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def is_ours(path: Path) -> bool:
    """Returns whether an existing file was written by `write`."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("current-context") == NAME
