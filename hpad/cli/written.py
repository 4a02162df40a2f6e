"""Where converted HPAs and settings go: standard output, or files of a folder; and what is wrong with settings."""

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from hpad.api.fields import INVALID, FieldError
from hpad.cli import configuration, plain
from hpad.manifests import documents
from hpad.manifests.documents import Document
from hpad.manifests.keda.found import Source

_PARTS: Final = ("apiVersion", "kind", "metadata", "spec")
SETTINGS: Final = "hpad.yaml"


class Output:
    """Standard output: one document after the other, the settings last."""

    def __init__(self, format: str) -> None:
        self.format = format
        self.written = 0

    def hpa(self, built: dict[str, Any], document: Document) -> FieldError | None:
        """Write an HPA; returns why it could not be written."""
        plain.print_document(self.text(built, document, first=not self.written))
        self.written += 1
        return None

    def settings(self, needed: dict[str, Any]) -> bool:
        """Write the settings, if any; False where that failed, which was said."""
        if needed:
            head = "" if self.format == "json" else "---\n# for hpad's configuration, hpad.yaml\n"
            plain.print_document(f"{head}{dumped(needed, self.format)}")
        return True

    def finish(self) -> bool:
        """Called at the end; False where something failed, which was said."""
        return True

    def text(self, built: dict[str, Any], document: Document, *, first: bool) -> str:
        """A manifest as people write them: apiVersion first, and no status unless there was one."""
        if self.format == "json":
            return dumped(built, "json")
        parts = [*_PARTS, *(["status"] if document.value.get("status") else [])]
        return ("" if first else "---\n") + dumped({part: built[part] for part in parts}, "yaml")


class Folder(Output):
    """A folder: HPAs in `hpas/`, each in a file of its own, and the settings in hpad.yaml.

    No file is overwritten that holds anything else than what would be written.
    """

    def __init__(self, folder: Path, format: str) -> None:
        super().__init__(format)
        self._folder = folder
        self._texts: dict[Path, str] = {}

    def hpa(self, built: dict[str, Any], document: Document) -> FieldError | None:
        metadata = built["metadata"]
        name = f"{metadata.get('namespace') or 'default'}.{metadata['name']}.{self.format}"
        path = self._folder / "hpas" / name
        if path in self._texts:
            return FieldError(INVALID, "metadata.name", f"metadata.name: {path} holds an HPA of that name already")
        self._texts[path] = self.text(built, document, first=True)
        return None

    def settings(self, needed: dict[str, Any]) -> bool:
        if needed:
            self._texts[self._folder / SETTINGS] = dumped(needed, "yaml")
        return True

    def finish(self) -> bool:
        try:
            missing = {path: text for path, text in self._texts.items() if not path.exists()}
            there = self._texts.keys() - missing.keys()
            changed = sorted(path for path in there if path.read_bytes() != self._texts[path].encode())
            for path in changed:
                says = "is there already with other content, so nothing is written: name another folder"
                print(f"hpad: {path} {says}", file=sys.stderr)
            if changed:
                return False
            for path, text in missing.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        except OSError as error:
            print(f"hpad: {error.filename or self._folder} cannot be written: {error.strerror}", file=sys.stderr)
            return False
        for path in self._texts:
            print(path)
        return True


def dumped(value: dict[str, Any], format: str) -> str:
    """A document as YAML, or as JSON on one line."""
    if format == "json":
        return msgspec.json.encode(value).decode() + "\n"
    return yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, width=120, allow_unicode=True)


def flaws(settings: dict[str, Any], sources: Iterable[Source]) -> list[FieldError]:
    """What `hpad check` would say about the settings; an error that names a metric is about the trigger it is of."""
    if not settings:
        return []
    with tempfile.TemporaryDirectory(prefix="hpad-") as folder:
        path = Path(folder) / SETTINGS
        path.write_text(dumped(settings, "yaml"), encoding="utf-8")
        [document] = documents.read(path)
        errors = [error.message.replace(f"{path}: ", "") for _, error in configuration.errors(document)]
    triggers = {source.entry: source.path for source in sources}
    return [
        FieldError(INVALID, next((path for name, path in triggers.items() if name in text), ""), text)
        for text in errors
    ]
