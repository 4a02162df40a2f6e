"""hpad's configuration file: which one applies, its settings, and what is wrong in it."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpad import settings
from hpad.api.fields import INVALID, FieldError
from hpad.manifests.documents import Document
from hpad.sources import plugins

_FROM_A_FILE = "configuration is checked from a file, not from standard input"


def load(option: Path | None, flags: Mapping[str, tuple[str, Any]]) -> settings.Settings:
    """The settings of file, environment and flags; see `path`. Raises SettingsError."""
    return settings.load(path(option), os.environ, flags)


def path(option: Path | None) -> Path | None:
    """The configuration file: the value of --config, else that of HPAD_CONFIG, else none."""
    name = os.environ.get("HPAD_CONFIG")
    return option or (Path(name) if name else None)


def errors(document: Document) -> Iterator[tuple[int, FieldError]]:
    """All errors of a configuration file and of its sources, each with its line.

    Blocks: imports adapters, and reads the files that sources name.
    """
    file = Path(document.file)
    if not file.is_file():
        yield document.line, FieldError(INVALID, "", _FROM_A_FILE)
        return
    try:
        settings.load(file, {}, {})
    except settings.SettingsError as error:
        for problem, place in zip(error.problems, error.places, strict=True):
            yield _placed(document, place, problem.removeprefix(f"{file}: "))
    for name, source in _sources(document.value):
        for flaw in plugins.check_settings(source):
            yield _placed(document, ("sources", name, *flaw.path), f"sources: {name}: {flaw}")


def scale_to_zero(value: dict[str, Any]) -> bool:
    """Whether the configuration turns the feature gate HPAScaleToZero on; False if its gates are invalid."""
    try:
        gates = settings.PARSERS["feature_gates"](value.get("feature_gates", {}))
    except ValueError:
        return False
    return bool(gates.get("HPAScaleToZero", False))


def _sources(value: dict[str, Any]) -> Iterator[tuple[str, settings.SourceSettings]]:
    """The sources whose own settings can be handed to their adapters, even if other fields are invalid."""
    sources = value.get("sources")
    for key, source in (sources if isinstance(sources, dict) else {}).items():
        if isinstance(source, dict) and isinstance(adapter := source.get("adapter", key), str):
            own = settings.of_adapter(source)
            yield str(key), settings.SourceSettings(name=str(key), adapter=adapter, settings=own)


def _placed(document: Document, place: tuple[str | int, ...], message: str) -> tuple[int, FieldError]:
    """An error with the line of the value at `place`, or of the nearest value around it."""
    field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")
    return document.line_at(place), FieldError(INVALID, field, message)
