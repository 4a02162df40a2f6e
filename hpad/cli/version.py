"""`hpad version`."""

import argparse
import importlib.metadata
import importlib.resources
import json
import platform
import re
import sys
from typing import Any

import hpad


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "version",
        help="print the version",
        description="Print hpad's version, and what it runs on: worth a line in a bug report.",
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text (default) or json")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    found = build()
    if args.output == "json":
        print(json.dumps(found, indent=2))
        return 0
    origin = ", ".join(filter(None, (found["commit"], found["date"])))
    print(f"hpad {found['version']}{f' ({origin})' if origin else ''}")
    print(f"{found['python']} on {found['platform']}")
    print(", ".join(f"{name} {version}" for name, version in found["packages"].items()))
    return 0


def build() -> dict[str, Any]:
    """`commit` and its `date` are what a release or an image was built from; where pip installed from a repository
    (PEP 610), it noted the commit. None where nobody noted them. `packages` are those hpad uses."""
    noted = _noted() or _installed()
    return {
        "version": hpad.__version__,
        "commit": noted.get("commit") or None,
        "date": noted.get("date") or None,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{platform.system()} {platform.machine()}",
        "executable": sys.executable,
        "packages": _packages(),
    }


def _noted() -> dict[str, str]:
    """What .ci/dist.py, or the Containerfile, left in the package."""
    try:
        noted: dict[str, str] = json.loads((importlib.resources.files("hpad") / "build.json").read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return noted


def _installed() -> dict[str, str]:
    """What pip noted when it installed from a repository."""
    try:
        text = importlib.metadata.distribution("hpad").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return {}
    noted: dict[str, Any] = json.loads(text) if text else {}
    return {"commit": noted.get("vcs_info", {}).get("commit_id", "")}


def _packages() -> dict[str, str]:
    """The versions of the distributions that hpad requires and that are there."""
    try:
        required = importlib.metadata.requires("hpad") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    names = [re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in required if "extra ==" not in line]
    found = {}
    for name in sorted(names, key=str.lower):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
