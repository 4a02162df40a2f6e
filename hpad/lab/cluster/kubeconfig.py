"""Writes kubeconfigs for the embedded cluster."""

import base64
import json
import os
import tempfile
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
    # Renamed when it is complete: programs wait for this file, and would read a part of it. Its mode is 0600.
    number, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=2) + "\n")
    os.replace(part, path)


def is_ours(path: Path) -> bool:
    """Returns whether an existing file was written by `write`."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("current-context") == NAME
