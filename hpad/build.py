"""Which build of hpad this is: version, commit and date."""

import importlib.metadata
import importlib.resources
import json
from importlib.metadata import Distribution
from typing import Any

import msgspec

from hpad import __version__


class Build(msgspec.Struct, frozen=True):
    """What a release or image was built from, or the commit that pip recorded (PEP 610); "" if unknown."""

    version: str
    commit: str = ""
    date: str = ""


def installed() -> Distribution | None:
    """Returns the installed distribution; None for a source tree on the path. Blocks."""
    return next(iter(importlib.metadata.distributions(name="hpad")), None)


def read() -> Build:
    """Reads the build from the files of the package. Blocks."""
    origin = _build_file() or _pip_record(installed())
    return Build(__version__, origin.get("commit") or "", origin.get("date") or "")


def _build_file() -> dict[str, str]:
    """Reads build.json, which .ci/dist.py or the Containerfile writes into the package."""
    try:
        content: dict[str, str] = json.loads((importlib.resources.files("hpad") / "build.json").read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return content


def _pip_record(distribution: Distribution | None) -> dict[str, str]:
    """Returns the commit that pip recorded when it installed from a repository."""
    text = distribution and distribution.read_text("direct_url.json")
    record: dict[str, Any] = json.loads(text) if text else {}
    return {"commit": record.get("vcs_info", {}).get("commit_id", "")}
