"""The errors of a configuration file, each with its line, for `hpad check`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpad import settings
from hpad.api.problem import Problem
from hpad.manifests.documents import Document


def errors(document: Document) -> Iterator[Problem]:
    """Yields all errors of a configuration file and of its sources, each with its line.

    Blocks: imports adapters, and reads the files that sources name.
    """
    from hpad.sources import plugins  # imported late, since `hpad check` of HPAs alone must start fast

    file = Path(document.file)
    if not file.is_file():
        text = "configuration is checked from a file, not from standard input"
        yield Problem("", text, document.line)
        return
    try:
        settings.load(file, {}, {})
    except settings.SettingsError as error:
        for problem in error.problems:
            yield document.placed(problem._replace(text=problem.text.removeprefix(f"{file}: ")))
    # Sources are checked even if the settings have errors: one run of the command shows all problems.
    for name, source in _sources(document.value):
        for problem in plugins.check_settings(source):
            yield document.placed(problem.inside(name).inside("sources"))


def warnings(document: Document) -> Iterator[Problem]:
    """Yields what this installation lacks for valid sources; the one that runs hpad may have it. Blocks as `errors`."""
    from hpad.sources import plugins  # imported late, as in `errors`

    for name, source in _sources(document.value):
        if lacking := plugins.lacking(source):
            yield document.placed(Problem("", lacking).inside(name).inside("sources"))


def _sources(value: dict[str, Any]) -> Iterator[tuple[str, settings.SourceSettings]]:
    """Yields the sources whose adapters are known, even if other fields are invalid."""
    sources = value.get("sources")
    for key, source in (sources if isinstance(sources, dict) else {}).items():
        if isinstance(source, dict) and isinstance(adapter := source.get("adapter", key), str):
            own = settings.of_adapter(source)
            yield str(key), settings.SourceSettings(name=str(key), adapter=adapter, settings=own)
