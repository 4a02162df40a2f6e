"""Reads the documents of the FILE arguments of `check`, `convert` and `cluster`: files, folders, standard input."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from hpad.manifests import documents
from hpad.manifests.documents import Document

STDIN: Final = "-"
NO_LINE: Final = 0
"""The line of an error that concerns a file or folder as a whole."""


def read(names: Iterable[str]) -> Iterator[Document]:
    """The documents of each file, of each folder's files in the order of their names, and of stdin for `-`.

    A file that cannot be read yields a document with a fault, so that the other files are still read.
    """
    for name in names:
        if name == STDIN:
            yield from documents.parse(sys.stdin.buffer.read(), "<stdin>")
        else:
            yield from _path(Path(name))


def place(document: Document, line: int) -> str:
    """FILE:LINE, or FILE for an error that concerns the whole file."""
    return document.file if line == NO_LINE else f"{document.file}:{line}"


def _path(path: Path) -> Iterator[Document]:
    try:
        files = _manifests(path) if path.is_dir() else [path]
        for file in files:
            found = documents.read(file)
            yield from found or [documents.broken(str(file), 0, 1, "holds no document")]
    except OSError as error:
        yield documents.broken(str(path), 0, NO_LINE, f"cannot be read: {error.strerror or error}")


def _manifests(folder: Path) -> list[Path]:
    """The files of a folder that can hold documents; raises OSError if there is none."""
    found = [path for path in sorted(folder.iterdir()) if path.suffix in documents.SUFFIXES and path.is_file()]
    if not found:
        raise FileNotFoundError(f"the folder has no file that ends in {', '.join(documents.SUFFIXES)}")
    return found
