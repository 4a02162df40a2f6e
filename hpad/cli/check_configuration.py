"""The errors of a configuration file, each with its line, for `hpad check`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpad import settings
from hpad.api.fields import INVALID, FieldError
from hpad.api.problem import Place
from hpad.manifests.documents import Document


def errors(document: Document) -> Iterator[tuple[int, FieldError]]:
    """Yields all errors of a configuration file and of its sources, each with its line.

    Blocks: imports adapters, and reads the files that sources name.
    """
    from hpad.sources import plugins  # imported late, since `hpad check` of HPAs alone must start fast

    file = Path(document.file)
    if not file.is_file():
        text = "configuration is checked from a file, not from standard input"
        yield document.line, FieldError(INVALID, "", text)
        return
    try:
        settings.load(file, {}, {})
    except settings.SettingsError as error:
        for text, place in zip(error.problems, error.places, strict=True):
            yield _configuration_error(document, place, text.removeprefix(f"{file}: "))
    # Sources are checked even if the settings have errors: one run of the command shows all problems.
    for name, source in _sources(document.value):
        for problem in plugins.check_settings(source):
            yield _configuration_error(document, ("sources", name, *problem.path), f"sources: {name}: {problem.dotted}")


def warnings(document: Document) -> Iterator[tuple[int, FieldError]]:
    """Yields what this installation lacks for valid sources; the one that runs hpad may have it. Blocks as `errors`."""
    from hpad.sources import plugins  # imported late, as in `errors`

    for name, source in _sources(document.value):
        if lacking := plugins.lacking(source):
            yield _configuration_error(document, ("sources", name), f"sources: {name}: {lacking}")


def _sources(value: dict[str, Any]) -> Iterator[tuple[str, settings.SourceSettings]]:
    """Yields the sources whose adapters are known, even if other fields are invalid."""
    sources = value.get("sources")
    for key, source in (sources if isinstance(sources, dict) else {}).items():
        if isinstance(source, dict) and isinstance(adapter := source.get("adapter", key), str):
            own = settings.of_adapter(source)
            yield str(key), settings.SourceSettings(name=str(key), adapter=adapter, settings=own)


def _configuration_error(document: Document, place: Place, message: str) -> tuple[int, FieldError]:
    """Returns an error with the line of the value at `place`, or of the nearest value around it."""
    return document.line_at(place), FieldError(INVALID, field_name(place), message)


def field_name(place: Place) -> str:
    """Returns a place in a document as Kubernetes writes it, such as spec.metrics[0].type."""
    field = ""
    for step in place:
        is_plain = isinstance(step, str) and not set(step) & set("./[]")
        field += f".{step}" if is_plain else f"[{step}]"
    return field.removeprefix(".")
