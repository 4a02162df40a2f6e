"""A folder of manifests as a source of HPAs, with the interface of `hpad.kube.cache.Cache`.

While a document is broken, its last valid HPA stays in force. An HPA is removed only after two consecutive scans did
not find its document, since an editor may be writing the file during one of them.

Files are read in a thread, large ones one at a time, so that changes of other files are applied meanwhile. The size of
a file (`yaml_reader.MAX_NODES`) and the number of its problems are bounded.
"""

import asyncio
import errno
import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG
from typing import Final

import msgspec
import structlog

from hpad.api import hpa as v2
from hpad.api.fields import DUPLICATE, INVALID, FieldError, required
from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.manifests import documents, hpas
from hpad.manifests.hpas import Loaded

Callback = Callable[[Key, HorizontalPodAutoscaler | None, HorizontalPodAutoscaler | None], None]
"""Called for each change with key, old HPA (None: added) and new HPA (None: removed). Must neither raise nor wait."""

_LARGEST: Final = 64 << 20
_LARGE: Final = 256 << 10
"""Bytes above which a file is read separately: reading some megabytes takes seconds."""
_MOST_PROBLEMS: Final = 100
"""The most problems per file that are kept and logged."""
_Stamp = tuple[bool, int, int, int, int]


@dataclass(frozen=True)
class Problem:
    """An error at one place of a file; `str()` is its log line."""

    file: str
    line: int
    subject: str
    error: FieldError

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.subject}{': ' if self.subject else ''}{self.error.message}"


@dataclass(frozen=True)
class _File:
    """A file as last read. It is read again once its stamp (gate, device, inode, time, size) changes."""

    stamp: _Stamp
    loaded: tuple[Loaded, ...]
    faults: tuple[Problem, ...]


@dataclass(frozen=True)
class _Held:
    hpa: HorizontalPodAutoscaler
    file: str


class FolderError(ValueError):
    """The path of the manifests is no usable folder; the message gives the reason."""


def check(path: Path, *, may_come: bool) -> None:
    """Raises FolderError if there is no folder at `path`. Blocks.

    `may_come`: another process may create the folder later, such as a sidecar that clones a repository. Then only a
    path that exists and is no folder is an error.
    """
    try:
        there = path.exists()
        if path.is_dir() or (may_come and not there):
            return
    except OSError as error:
        raise FolderError(f"manifests: {path} cannot be looked at: {error.strerror}") from None
    if there:
        raise FolderError(f"manifests: {path} is not a folder")
    raise FolderError(f"manifests: there is no folder {path}: create it (it may be empty), or name another")


class Folder:
    """The HPAs of all manifests directly in a folder; `run` scans the folder every `poll_seconds`.

    namespace: for documents without one. scale_to_zero: the gate HPAScaleToZero. errors: problems by file. trouble: why
    the folder cannot be read, else None. The resourceVersion of an HPA is a digest of its content; its `generation`
    counts changes since the start.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        namespace: str = hpas.DEFAULT_NAMESPACE,
        scale_to_zero: bool = False,
        poll_seconds: float = 2.0,
    ) -> None:
        self.path = path
        self.synced = asyncio.Event()
        self.errors: Mapping[str, tuple[Problem, ...]] = {}
        self.trouble: str | None = None
        self._clock = clock
        self._namespace = namespace
        self._scale_to_zero = scale_to_zero
        self._poll_seconds = poll_seconds
        self._files: dict[str, _File] = {}
        self._held: dict[Key, _Held] = {}
        self._missed: frozenset[Key] = frozenset()
        self._values: dict[Key, HorizontalPodAutoscaler] = {}
        self._callbacks: list[Callback] = []
        self._log = structlog.get_logger("hpad.manifests")
        self._looked = clock.monotonic()

    def get(self, key: Key) -> HorizontalPodAutoscaler | None:
        return self._values.get(key)

    def values(self) -> Collection[HorizontalPodAutoscaler]:
        """A live view of all HPAs; copy it before an await."""
        return self._values.values()

    def __len__(self) -> int:
        return len(self._values)

    def allow_zero(self, allowed: bool) -> None:
        """Sets the gate HPAScaleToZero for minReplicas 0; the next scan reads all files again."""
        self._scale_to_zero = allowed

    def subscribe(self, callback: Callback) -> None:
        """Registers a callback for all later changes."""
        self._callbacks.append(callback)

    def staleness(self, now: float) -> float:
        """Seconds (monotonic clock) since the folder was last read successfully."""
        return max(0.0, now - self._looked)

    async def run(self) -> None:
        """Scans until cancelled. If the folder cannot be read, sets `trouble` and keeps its HPAs."""
        while True:
            await self.refresh()
            await self._clock.sleep(self._poll_seconds)

    async def refresh(self) -> None:
        """Scans once, and again every `poll_seconds` while changed large files are read. Runs callbacks on the loop."""
        large = await self._look()
        if large is None:
            return
        for path in large:
            await self._read_alone(path)
        if not self.synced.is_set():
            await self._settle(look=True)
            self.synced.set()

    async def _look(self, *, reading: bool = False) -> list[Path] | None:
        """Applies all changes except those of large files, which it returns. None if the folder cannot be read.

        While a large file is being read (`reading`), an HPA that is missing may be in it, and is kept.
        """
        try:
            files, large = await asyncio.to_thread(self._scan, dict(self._files))
        except OSError as error:
            self._report_trouble(f"cannot read the folder {self.path}: {error.strerror or error}")
            return None
        self._report_trouble(None)
        self._looked = self._clock.monotonic()
        changed, self._files = files != self._files, files
        if self.synced.is_set() and (changed or self._missed):
            await self._settle(look=not reading)
        return large

    async def _read_alone(self, path: Path) -> None:
        """Reads one large file, and applies changes of other files meanwhile."""
        name = str(path)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(asyncio.to_thread(self._read, path, self._files.get(name)))
            while not reading.done():
                pause = tasks.create_task(self._clock.sleep(self._poll_seconds))
                await asyncio.wait({reading, pause}, return_when=asyncio.FIRST_COMPLETED)
                pause.cancel()
                if not reading.done():
                    await self._look(reading=True)
        self._put(name, reading.result())
        if self.synced.is_set():
            await self._settle(look=False)

    def _put(self, name: str, file: _File | None) -> None:
        """Replaces the entry of one file, or removes it if `file` is None; keeps the files sorted by name."""
        files = {each: known for each, known in self._files.items() if each != name}
        if file is not None:
            files[name] = file
        self._files = dict(sorted(files.items()))

    def _scan(self, known: dict[str, _File]) -> tuple[dict[str, _File], list[Path]]:
        """Reads new and changed files: all files by name, and the changed large ones, smallest first.

        A changed large file keeps its earlier entry. Blocks.
        """
        found: dict[str, _File] = {}
        large: list[tuple[int, Path]] = []
        for path in sorted(self.path.iterdir()):
            if path.name.startswith(".") or path.suffix not in documents.SUFFIXES:
                continue
            file = known.get(str(path))
            size = _size_of_change(path, file, self._scale_to_zero)
            if size > _LARGE:
                large.append((size, path))
            else:
                file = self._read(path, file)
            if file is not None:
                found[str(path)] = file
        return found, [path for _, path in sorted(large)]

    def _read(self, path: Path, known: _File | None) -> _File | None:
        """Reads one file; None if it no longer exists. Returns `known` if it is unreadable or changes. Blocks."""
        try:
            stamp = _stamp(path, self._scale_to_zero)
            if known is not None and known.stamp == stamp:
                return known
            found = documents.read(path)
            if _stamp(path, stamp[0]) != stamp:
                return known  # still being written: the next look reads it
        except FileNotFoundError:
            return None
        except OSError as error:
            fault = FieldError(INVALID, "", f"cannot be read: {error.strerror or error}")
            problem = Problem(str(path), 1, "", fault)
            return _File((False, 0, 0, 0, 0), known.loaded if known else (), (problem,))
        return self._judged(stamp, found)

    def _judged(self, stamp: _Stamp, found: list[documents.Document]) -> _File:
        loaded: list[Loaded] = []
        faults: list[Problem] = []
        for document in found:
            if hpas.is_hpa(document.value):
                each = hpas.load(document, namespace=self._namespace, scale_to_zero=stamp[0])
                fields = ("metadata.name", *(error.field for error in each.errors[:_MOST_PROBLEMS]))
                digested = None if each.hpa is None else _digested(each.hpa)
                loaded.append(replace(each, hpa=digested, document=document.slim(*fields)))
            elif not isinstance(document.value, dict):
                errors = document.faults or (hpas.not_an_object(document),)
                faults.extend(Problem(document.file, document.line, "", error) for error in errors)
        return _File(stamp, tuple(loaded), tuple(faults))

    async def _settle(self, *, look: bool) -> None:
        """Updates the HPAs from the files, and runs callbacks. `look`: whether a scan of all files came before."""
        held, errors = await asyncio.to_thread(self._wanted)
        fresh = [
            problem for file, found in errors.items() for problem in found if problem not in self.errors.get(file, ())
        ]
        for problem in fresh:
            self._log.warning("a manifest is not good", file=problem.file, line=problem.line, error=str(problem))
        self.errors = errors
        self._miss(held, look=look)
        before, self._held = self._held, held
        for key in [*before, *(key for key in held if key not in before)]:
            old = before[key].hpa if key in before else None
            new = held[key].hpa if key in held else None
            if old is not new:
                self._change(key, old, new)

    def _miss(self, held: dict[Key, _Held], *, look: bool) -> None:
        """Keeps HPAs that were not found for the first time; the next scan decides on them."""
        missing = frozenset(self._held) - frozenset(held)
        for key in missing - self._missed if look else missing:
            held[key] = self._held[key]
        self._missed = missing - self._missed if look else missing

    def _change(self, key: Key, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        if new is None:
            del self._values[key]
        else:
            self._values[key] = new
        for callback in self._callbacks:
            callback(key, old, new)

    def _wanted(self) -> tuple[dict[Key, _Held], dict[str, tuple[Problem, ...]]]:
        """The HPAs of the files as read, and the problems by file. Slow with many files: runs in a thread."""
        held: dict[Key, _Held] = {}
        claimed: dict[Key, Loaded] = {}
        errors: dict[str, tuple[Problem, ...]] = {}
        for name, file in self._files.items():
            problems = list(file.faults)
            for loaded in file.loaded:
                problems.extend(self._claim(loaded, claimed, held))
            if file.faults or any(loaded.key is None for loaded in file.loaded):
                self._keep_all_of(name, held)
            if problems:
                errors[name] = _capped(problems)
        return held, errors

    def _claim(self, loaded: Loaded, claimed: dict[Key, Loaded], held: dict[Key, _Held]) -> list[Problem]:
        """Adds the HPA of one document to `held`, its last valid version if it is broken; returns its problems."""
        document, key = loaded.document, loaded.key
        errors = list(loaded.errors)
        if key is None and not any(error.field.startswith("metadata.name") for error in errors):
            errors.append(required("metadata.name", "an HPA from a file needs a name"))
        elif key is not None and key in claimed:
            first = claimed[key].document
            detail = f"{key} is in {first.file}:{first.line} already, which counts; this one is ignored"
            errors.append(FieldError(DUPLICATE, "metadata.name", f"metadata.name: Duplicate value: {detail}"))
        elif key is not None:
            claimed[key] = loaded
            before = self._held.get(key)
            if loaded.hpa is not None and not errors:
                held[key] = _Held(_numbered(loaded.hpa, before.hpa if before else None), document.file)
            elif before is not None:
                held[key] = before
        return [
            Problem(document.file, document.line_of(error.field), str(loaded), hpas.explained(error))
            for error in errors
        ]

    def _keep_all_of(self, file: str, held: dict[Key, _Held]) -> None:
        """Keeps all earlier HPAs of a file that could be read only in part, unless another document has them."""
        for key, before in self._held.items():
            if before.file == file:
                held.setdefault(key, before)

    def _report_trouble(self, trouble: str | None) -> None:
        if trouble is not None and trouble != self.trouble:
            self._log.warning("the manifests cannot be read", error=trouble)
        self.trouble = trouble


def _capped(problems: list[Problem]) -> tuple[Problem, ...]:
    """The first problems, and one with the number of further ones."""
    rest = len(problems) - _MOST_PROBLEMS
    if rest <= 0:
        return tuple(problems)
    last = problems[_MOST_PROBLEMS]
    more = FieldError(INVALID, "", f"{rest} more problems from here on")
    return (*problems[:_MOST_PROBLEMS], Problem(last.file, last.line, "", more))


def _size_of_change(path: Path, known: _File | None, scale_to_zero: bool) -> int:
    """The size in bytes of a changed file; 0 for one that is unchanged or cannot be read."""
    try:
        stamp = _stamp(path, scale_to_zero)
    except OSError:
        return 0  # reading it reports the error
    return 0 if known is not None and known.stamp == stamp else stamp[-1]


def _stamp(path: Path, scale_to_zero: bool) -> _Stamp:
    stat = path.stat()  # follows links: a mounted ConfigMap changes by replacing the link to its folder
    if not S_ISREG(stat.st_mode):
        raise OSError(errno.EINVAL, "not a file")  # reading a pipe or device might never end
    if stat.st_size > _LARGEST:
        raise OSError(errno.EFBIG, f"larger than {_LARGEST >> 20} MiB")
    return scale_to_zero, stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


def _digested(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """The HPA without status, and with a digest of its content as resourceVersion."""
    hpa = msgspec.structs.replace(hpa, status=HorizontalPodAutoscalerStatus())
    content = msgspec.json.encode(hpa, enc_hook=v2.enc_hook, order="sorted")
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    return msgspec.structs.replace(hpa, metadata=msgspec.structs.replace(hpa.metadata, resource_version=digest))


def _numbered(hpa: HorizontalPodAutoscaler, before: HorizontalPodAutoscaler | None) -> HorizontalPodAutoscaler:
    """The HPA with the next generation; `before` itself if the content is unchanged."""
    if before is not None and before.metadata.resource_version == hpa.metadata.resource_version:
        return before
    generation = before.metadata.generation + 1 if before is not None else 1
    return msgspec.structs.replace(hpa, metadata=msgspec.structs.replace(hpa.metadata, generation=generation))
