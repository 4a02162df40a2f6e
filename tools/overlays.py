"""Renders the overlays of config/ by `kubectl kustomize`: `python -m tools.overlays` writes the files.

config/install.yaml is the overlay `hosted`, for `kubectl apply -f`; the tests read the others from tests/data/overlays.
`--check` exits with status 1 if a file has not what its overlay gives. Objects are compared, not text, since versions
of kubectl order fields and quote text differently. Without a kubectl of 1.22 or later it says so, and compares
nothing.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
OVERLAYS = ROOT / "config" / "overlays"
RENDERED = ROOT / "tests" / "data" / "overlays"
FILES = {each.name: RENDERED / f"{each.name}.yaml" for each in sorted(OVERLAYS.iterdir())}
FILES["hosted"] = ROOT / "config" / "install.yaml"
OLDEST = 22
"""The minor version of kubectl since which `kustomize` may change the kind of an object by a patch."""
_HEAD = """\
# Written by `make docs` from config/overlays/{name}; changes made here are lost.{more}
"""
_MORE = """
#   kubectl apply -f config/install.yaml
# is the same as
#   kubectl apply -k config/overlays/hosted"""


def minor(kubectl: str) -> int:
    """Returns the minor version of a kubectl: 32 of v1.32.4."""
    command = [kubectl, "version", "--client", "--output=json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(json.loads(done.stdout)["clientVersion"]["minor"].rstrip("+"))


def rendered(kubectl: str, name: str) -> str:
    """Returns the objects of an overlay as YAML, with what made them in a comment."""
    command = [kubectl, "kustomize", str(OVERLAYS / name)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return _HEAD.format(name=name, more=_MORE if name == "hosted" else "") + done.stdout


def objects(text: str) -> dict[tuple[str, str, str], Any]:
    """Returns the objects of a text by kind, namespace and name."""
    found = {}
    for each in yaml.safe_load_all(text):
        found[each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]] = each
    return found


def main(arguments: Sequence[str]) -> int:
    kubectl = shutil.which("kubectl")
    if kubectl is None or minor(kubectl) < OLDEST:
        print(f"overlays: no kubectl of 1.{OLDEST} or later: renderings of config/overlays were skipped")
        return 0
    stale = []
    for name, path in FILES.items():
        text = rendered(kubectl, name)
        if path.exists() and objects(path.read_text("utf-8")) == objects(text):
            continue
        stale.append(str(path.relative_to(ROOT)))
        if arguments != ["--check"]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale and arguments == ["--check"]:
        print(f"not what config/overlays gives: {', '.join(stale)}: run make docs")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
