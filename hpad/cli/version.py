"""`hpad version`: prints hpad's version, and the versions of Python and of the packages it uses."""

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
        help="print the version, and what hpad runs on",
        description="Print hpad's version and commit, Python, the platform and the packages it uses, for bug reports.",
        epilog="exit status: 0 success, 2 wrong use",
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
    """The data of `hpad version -o json`.

    `commit` and `date`: what a release or image was built from, or the commit that pip recorded (PEP 610); None if
    unknown. `packages`: the distributions that hpad requires.
    """
    origin = _build_file() or _pip_record()
    return {
        "version": hpad.__version__,
        "commit": origin.get("commit") or None,
        "date": origin.get("date") or None,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{platform.system()} {platform.machine()}",
        "executable": sys.executable,
        "packages": _packages(),
    }


def _build_file() -> dict[str, str]:
    """build.json, which .ci/dist.py or the Containerfile writes into the package."""
    try:
        content: dict[str, str] = json.loads((importlib.resources.files("hpad") / "build.json").read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return content


def _pip_record() -> dict[str, str]:
    """The commit that pip recorded when it installed from a repository."""
    try:
        text = importlib.metadata.distribution("hpad").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return {}
    record: dict[str, Any] = json.loads(text) if text else {}
    return {"commit": record.get("vcs_info", {}).get("commit_id", "")}


def _packages() -> dict[str, str]:
    """The versions of the installed distributions that hpad requires."""
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
