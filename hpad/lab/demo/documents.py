"""The manifests of the demo, with this machine's values filled in."""

import sys
from collections.abc import Mapping
from importlib import resources
from typing import Any

import yaml

Document = dict[str, Any]


def load(name: str, environment: Mapping[str, str]) -> list[Document]:
    """Returns the documents of `manifests/NAME.yaml`.

    The command `python` becomes the path of this interpreter. Variables of containers get their values from
    `environment`, if it has them.
    """
    text = (resources.files("hpad.lab.demo") / "manifests" / f"{name}.yaml").read_text(encoding="utf-8")
    documents: list[Document] = list(yaml.safe_load_all(text))
    for document in documents:
        template = document["spec"].get("template", {})
        for container in template.get("spec", {}).get("containers", ()):
            _fill_in(container, environment)
    return documents


def _fill_in(container: Document, environment: Mapping[str, str]) -> None:
    program, *arguments = container["command"]
    container["command"] = [sys.executable if program == "python" else program, *arguments]
    for variable in container.get("env", ()):
        if variable["name"] in environment:
            variable["value"] = environment[variable["name"]]
