"""A kubeconfig for the embedded cluster, which asks for no credentials."""

import json
from pathlib import Path

NAME = "hpad-lab"


def write(path: Path, url: str) -> None:
    """Write it (JSON is YAML, which kubectl reads). Blocks: call it in a thread inside a coroutine."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": url}}],
        "users": [{"name": NAME, "user": {}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
        "current-context": NAME,
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def is_ours(path: Path) -> bool:
    """Whether an existing file is one that `write` wrote."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("current-context") == NAME
