"""What is wrong with a file of the daemon's configuration: its settings, and those of the adapters of its sources."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpad import settings
from hpad.api.fields import INVALID, FieldError
from hpad.manifests.documents import Document
from hpad.sources import plugins

_FROM_A_FILE = "configuration is checked from a file, not from standard input"


def errors(document: Document) -> Iterator[tuple[int, FieldError]]:
    """All errors, each with its line. It blocks: adapters are imported, and the files that sources name are read."""
    path = Path(document.file)
    if not path.is_file():
        yield document.line, FieldError(INVALID, "", _FROM_A_FILE)
        return
    try:
        settings.load(path, {}, {})
    except settings.SettingsError as error:
        for problem, place in zip(error.problems, error.places, strict=True):
            yield _placed(document, place, problem.removeprefix(f"{path}: "))
    for name, source in _sources(document.value):
        for flaw in plugins.check_settings(source):
            yield _placed(document, ("sources", name, *flaw.path), f"sources: {name}: {flaw}")


def scale_to_zero(value: dict[str, Any]) -> bool:
    """Whether the configuration turns the feature gate HPAScaleToZero on; one that cannot be read does not."""
    try:
        gates = settings.PARSERS["feature_gates"](value.get("feature_gates", {}))
    except ValueError:
        return False
    return bool(gates.get("HPAScaleToZero", False))


def _sources(value: dict[str, Any]) -> Iterator[tuple[str, settings.SourceSettings]]:
    """The sources, as far as they are good enough for their adapters to judge what is theirs."""
    given = value.get("sources")
    for key, source in (given if isinstance(given, dict) else {}).items():
        if isinstance(source, dict) and isinstance(adapter := source.get("adapter", key), str):
            own = settings.of_adapter(source)
            yield str(key), settings.SourceSettings(name=str(key), adapter=adapter, settings=own)


def _placed(document: Document, place: tuple[str | int, ...], message: str) -> tuple[int, FieldError]:
    """The message with the line of what stands at that place of the configuration, or nearest to it."""
    field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")
    return document.line_at(place), FieldError(INVALID, field, message)
