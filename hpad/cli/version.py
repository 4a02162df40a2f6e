"""`hpad version`: prints hpad's version, and the versions of Python and of the packages it uses."""

import argparse
import importlib.metadata
import platform
import re
import sys
from importlib.metadata import Distribution
from typing import Any, Final

from hpad import build as build_of_hpad
from hpad.cli import output

HELP: Final = "print the version, and what hpad runs on"
DESCRIPTION: Final = "Print hpad's version and commit, Python, the platform and the packages it uses, for bug reports."
EPILOG: Final = "exit status: 0 success, 2 wrong use"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    output.add_format(parser)


def run(args: argparse.Namespace) -> int:
    found = build()
    if args.output == "json":
        output.print_value(found, "json")
        return 0
    origin = ", ".join(filter(None, (found["commit"], found["date"])))
    print(f"hpad {found['version']}{f' ({origin})' if origin else ''}")
    print(f"{found['python']} on {found['platform']}")
    print(", ".join(f"{name} {version}" for name, version in found["packages"].items()))
    return 0


def build() -> dict[str, Any]:
    """Returns the data of `hpad version -o json`.

    `commit` and `date`: what a release or image was built from, or the commit that pip recorded (PEP 610); None if
    unknown. `packages`: the distributions that hpad requires.
    """
    found = build_of_hpad.read()
    return {
        "version": found.version,
        "commit": found.commit or None,
        "date": found.date or None,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{platform.system()} {platform.machine()}",
        "executable": sys.executable,
        "packages": _packages(build_of_hpad.installed()),
    }


def _packages(installed: Distribution | None) -> dict[str, str]:
    """Returns the versions of the installed distributions that hpad requires."""
    required = (installed and installed.requires) or []
    names = [re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in required if "extra ==" not in line]
    found = {}
    for name in sorted(names, key=str.lower):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
