"""A folder of manifests, or a single file, as a source of HPAs, with the interface of `hpad.kube.cache.Cache`.

While a document is broken, its last valid HPA stays in force. An HPA is removed only after two consecutive scans did
not find its document, since an editor may be writing the file during one of them.

Files are read in a thread: some megabytes take seconds. The size of a file (`yaml_reader.MAX_NODES`) and the number of
its problems are bounded.
"""

import asyncio
import errno
import hashlib
import os
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from hpad.api import decode
from hpad.api import hpa as v2
from hpad.api.hpa import HorizontalPodAutoscaler, without_status
from hpad.api.metadata import Key
from hpad.api.problem import DUPLICATE, Problem, required
from hpad.clock import Clock
from hpad.files import check_size, opened
from hpad.manifests import documents, hpas
from hpad.manifests.hpas import Loaded

Callback = Callable[[Key, HorizontalPodAutoscaler | None, HorizontalPodAutoscaler | None], None]
"""Called for each change with key, old HPA (None: added) and new HPA (None: removed). Must neither raise nor wait."""

_MAX_PROBLEMS: Final = 100
"""The number of problems per file that are kept and logged."""
_Stamp = tuple[bool, int, int, int, int]


@dataclass(frozen=True)
class _File:
    """A file as last read. It is read again once its stamp (gate, device, inode, time, size) changes."""

    stamp: _Stamp
    loaded: tuple[Loaded, ...]
    faults: tuple[Problem, ...]


class _Entry(NamedTuple):
    hpa: HorizontalPodAutoscaler
    file: str


class FolderError(ValueError):
    """The path of the manifests is no usable folder or file; the message gives the reason."""


def check(path: Path, *, may_come: bool) -> None:
    """Raises FolderError if there is no folder or file at `path`. Blocks.

    `may_come`: another process may create it later, such as a sidecar that clones a repository. Then only a path that
    exists and is neither is an error.
    """
    try:
        exists = path.exists()
        if path.is_dir() or path.is_file() or (may_come and not exists):
            return
    except OSError as error:
        raise FolderError(f"manifests: {path} cannot be read: {error.strerror}") from None
    if exists:
        raise FolderError(f"manifests: {path} is neither a file nor a folder")
    raise FolderError(f"manifests: there is no folder or file {path}: create it (it may be empty), or name another")


class Folder:
    """The HPAs of all manifests directly in a folder, or of one file; `run` scans it every `poll_seconds`.

    scale_to_zero: the gate HPAScaleToZero. errors: problems by file. trouble: the
    reason why folder or file cannot be read, else None. The resourceVersion of an HPA is a digest of its content; its
    `generation` counts changes since the start.
    """

    def __init__(self, path: Path, clock: Clock, *, scale_to_zero: bool = False, poll_seconds: float = 2.0) -> None:
        self.path = path
        self.synced = asyncio.Event()
        self.errors: Mapping[str, tuple[Problem, ...]] = {}
        self.trouble: str | None = None
        self._clock = clock
        self._scale_to_zero = scale_to_zero
        self._poll_seconds = poll_seconds
        self._files: dict[str, _File] = {}
        self._entries: dict[Key, _Entry] = {}
        self._missed: frozenset[Key] = frozenset()
        self._values: dict[Key, HorizontalPodAutoscaler] = {}
        self._callbacks: list[Callback] = []
        self._log = structlog.get_logger("hpad.manifests")
        self._read_at = clock.monotonic()

    def get(self, key: Key) -> HorizontalPodAutoscaler | None:
        return self._values.get(key)

    def values(self) -> Collection[HorizontalPodAutoscaler]:
        """Returns a live view of all HPAs; copy it before an await."""
        return self._values.values()

    def keys(self) -> Collection[Key]:
        """Returns a live view of the keys of all HPAs."""
        return self._values.keys()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def may_exist(self, key: Key) -> bool:
        return key in self

    def allow_zero(self, allowed: bool) -> None:
        """Sets the gate HPAScaleToZero for minReplicas 0; the next scan reads all files again."""
        self._scale_to_zero = allowed

    def subscribe(self, callback: Callback) -> None:
        """Registers a callback for all later changes."""
        self._callbacks.append(callback)

    def staleness(self, now: float) -> float:
        """Returns seconds (monotonic clock) since the folder was last read successfully."""
        return max(0.0, now - self._read_at)

    async def run(self) -> None:
        """Scans until cancelled. If the folder cannot be read, sets `trouble` and keeps its HPAs."""
        while True:
            await self.refresh()
            await self._clock.sleep(self._poll_seconds)

    async def refresh(self) -> None:
        """Scans once, and runs callbacks on the loop."""
        try:
            files = await asyncio.to_thread(self._scan, dict(self._files))
        except OSError as error:
            self._report_trouble(f"cannot read {self.path}: {error.strerror or error}")
            return
        self._report_trouble(None)
        self._read_at = self._clock.monotonic()
        changed, self._files = files != self._files, files
        if changed or self._missed or not self.synced.is_set():
            await self._apply()
            self.synced.set()

    def _scan(self, known: Mapping[str, _File]) -> dict[str, _File]:
        """Returns all files by name; reads new and changed ones. Blocks."""
        found = {str(path): self._read(path, known.get(str(path))) for path in self._paths()}
        return {name: file for name, file in found.items() if file is not None}

    def _paths(self) -> list[Path]:
        """Returns the files to read. Raises OSError where there is neither a folder nor a file. Blocks."""
        if self.path.is_file():
            return [self.path]
        paths = sorted(self.path.iterdir())
        return [each for each in paths if not each.name.startswith(".") and each.suffix in documents.SUFFIXES]

    def _read(self, path: Path, known: _File | None) -> _File | None:
        """Reads one file; None if it no longer exists. Returns `known` if it is unreadable or changes. Blocks."""
        try:
            with opened(path) as file:
                stamp = _stamp(os.fstat(file.fileno()), self._scale_to_zero)
                if known is not None and known.stamp == stamp:
                    return known
                content = file.read(stamp[-1] + 1) or b""
                if _stamp(os.fstat(file.fileno()), stamp[0]) != stamp:
                    return known  # the file is still being written; the next scan reads it
            if len(content) > stamp[-1]:
                raise OSError(errno.EINVAL, f"longer than its size, {stamp[-1]} bytes")
        except FileNotFoundError:
            return None
        except OSError as error:
            return _unread(f"cannot be read: {error.strerror or error}", known)
        try:
            return self._file(stamp, documents.parse(content, str(path), path.suffix))
        except Exception as error:  # noqa: BLE001  # the author of one file must not stop hpad
            # Without the text of the error, which may quote the file.
            *_, (frame, line) = traceback.walk_tb(error.__traceback__)
            place = f"{type(error).__name__} at {frame.f_code.co_filename}:{line}"
            return _unread(f"cannot be read, because of a bug of hpad: {place}", known, stamp)

    def _file(self, stamp: _Stamp, found: list[documents.Document]) -> _File:
        loaded: list[Loaded] = []
        faults: list[Problem] = []
        for document in found:
            if hpas.is_hpa(document.value):
                each = hpas.load(document, scale_to_zero=stamp[0])
                fields = ("metadata.name", *(error.path for error in each.errors[:_MAX_PROBLEMS]))
                digested = None if each.hpa is None else _digested(each.hpa)
                loaded.append(replace(each, hpa=digested, document=document.without_content(*fields)))
            elif not isinstance(document.value, dict):
                errors = document.faults or decode.read(document.value).errors
                faults.extend(error._replace(line=document.line) for error in errors)
        return _File(stamp, tuple(loaded), tuple(faults))

    async def _apply(self) -> None:
        """Updates the HPAs from the files that have just been scanned, and runs callbacks."""
        found, errors = await asyncio.to_thread(self._resolved)
        for file, problems in errors.items():
            for problem in problems:
                if problem not in self.errors.get(file, ()):
                    self._log.warning("invalid manifest", file=file, line=problem.line, error=problem.at(file))
        self.errors = errors
        self._keep_missing(found)
        before, self._entries = self._entries, found
        for key in {**before, **found}:
            old = before[key].hpa if key in before else None
            new = found[key].hpa if key in found else None
            if old is not new:
                self._change(key, old, new)

    def _keep_missing(self, found: dict[Key, _Entry]) -> None:
        """Adds the HPAs to `found` that are missing for the first time: the next scan decides on them."""
        self._missed = frozenset(self._entries) - frozenset(found) - self._missed
        found.update((key, self._entries[key]) for key in self._missed)

    def _change(self, key: Key, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        if new is None:
            del self._values[key]
        else:
            self._values[key] = new
        for callback in self._callbacks:
            callback(key, old, new)

    def _resolved(self) -> tuple[dict[Key, _Entry], dict[str, tuple[Problem, ...]]]:
        """Returns the HPAs and the problems of all files as last read. Slow with many files: runs in a thread."""
        found: dict[Key, _Entry] = {}
        defined: dict[Key, Loaded] = {}
        errors: dict[str, tuple[Problem, ...]] = {}
        for name, file in self._files.items():
            problems = list(file.faults)
            for loaded in file.loaded:
                problems.extend(self._add(loaded, defined, found))
            # An unreadable part, or a document without a name, may be any HPA of the file.
            if file.faults or any(loaded.key is None for loaded in file.loaded):
                self._keep_all_of(name, found)
            if problems:
                errors[name] = _capped(problems)
        return found, errors

    def _add(self, loaded: Loaded, defined: dict[Key, Loaded], found: dict[Key, _Entry]) -> list[Problem]:
        """Adds the HPA of one document to `found`, or its last valid version; returns the problems of the document."""
        document, key = loaded.document, loaded.key
        errors = list(loaded.errors)
        if key is None and not any(error.path.startswith("metadata.name") for error in errors):
            errors.append(required("metadata.name", "an HPA from a file needs a name"))
        elif key is not None and key in defined:
            first = defined[key].document
            detail = f"{key} is already defined in {first.file}:{first.line}; this document is ignored"
            text = f"metadata.name: Duplicate value: {detail}"
            errors.append(Problem("metadata.name", text, reason=DUPLICATE))
        elif key is not None:
            defined[key] = loaded
            before = self._entries.get(key)
            if loaded.hpa is not None and not errors:
                found[key] = _Entry(_numbered(loaded.hpa, before.hpa if before else None), document.file)
            elif before is not None:
                found[key] = before
        explained = map(hpas.explained, errors)
        return [document.placed(error._replace(text=f"{loaded}: {error.text}")) for error in explained]

    def _keep_all_of(self, file: str, found: dict[Key, _Entry]) -> None:
        """Keeps the earlier HPAs of a file that could be read only in part, unless another document defines them."""
        for key, before in self._entries.items():
            if before.file == file:
                found.setdefault(key, before)

    def _report_trouble(self, trouble: str | None) -> None:
        if trouble is not None and trouble != self.trouble:
            self._log.warning("the manifests cannot be read", error=trouble)
        self.trouble = trouble


def _unread(text: str, known: _File | None, stamp: _Stamp = (False, 0, 0, 0, 0)) -> _File:
    """Returns a file with this problem, and with the HPAs that it had. With a stamp it is not read again."""
    return _File(stamp, known.loaded if known else (), (Problem("", text, line=1),))


def _capped(problems: list[Problem]) -> tuple[Problem, ...]:
    """Returns the first problems, and one with the number of the others."""
    rest = len(problems) - _MAX_PROBLEMS
    if rest <= 0:
        return tuple(problems)
    more = Problem("", f"{rest} more problems from here on", line=problems[_MAX_PROBLEMS].line)
    return (*problems[:_MAX_PROBLEMS], more)


def _stamp(stat: os.stat_result, scale_to_zero: bool) -> _Stamp:
    check_size(stat.st_size)
    return scale_to_zero, stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


def _digested(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Returns the HPA without status, and with a digest of its content as resourceVersion."""
    hpa = without_status(hpa)
    content = msgspec.json.encode(hpa, enc_hook=v2.enc_hook, order="sorted")
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    return msgspec.structs.replace(hpa, metadata=msgspec.structs.replace(hpa.metadata, resource_version=digest))


def _numbered(hpa: HorizontalPodAutoscaler, before: HorizontalPodAutoscaler | None) -> HorizontalPodAutoscaler:
    """Returns the HPA with the next generation; `before` itself if the content is unchanged."""
    if before is not None and before.metadata.resource_version == hpa.metadata.resource_version:
        return before
    generation = before.metadata.generation + 1 if before is not None else 1
    return msgspec.structs.replace(hpa, metadata=msgspec.structs.replace(hpa.metadata, generation=generation))
