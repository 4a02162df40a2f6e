"""Runs hpad with a profile of its main thread: `python -m tools.bench.cluster.profiled KIND FILE run ...`.

The first SIGUSR2 starts the profile, the second one writes it. `sample` interrupts the thread after each few
milliseconds of CPU time and costs nearly nothing; time in C counts for the Python function that called it. `calls` is
cProfile: it counts the calls and slows hpad down by more than half.
"""

import cProfile
import gc
import io
import pstats
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Protocol

_SAMPLE_SECONDS: Final = 0.005
_SHOWN: Final = 45
_DEEPEST: Final = 60


class Profile(Protocol):
    def start(self) -> None: ...
    def stop(self) -> str: ...


class Samples:
    """Samples of the stack by CPU time, and the time that collecting garbage takes."""

    def __init__(self) -> None:
        self._own: Counter[CodeType] = Counter()
        self._with_callees: Counter[CodeType] = Counter()
        self._collecting = self._collected = self._cpu = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._collection)
        self._cpu = time.process_time()
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, _SAMPLE_SECONDS, _SAMPLE_SECONDS)

    def stop(self) -> str:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        gc.callbacks.remove(self._collection)
        cpu = time.process_time() - self._cpu
        count = max(self._own.total(), 1)
        packages: Counter[str] = Counter()
        for code, samples in self._own.items():
            packages[_package(code.co_filename)] += samples
        sections = {
            "packages, own time": [(share, name) for name, share in packages.most_common(_SHOWN)],
            "functions, own time": [(share, _name(code)) for code, share in self._own.most_common(_SHOWN)],
            "functions, with those they call": [
                (share, _name(code)) for code, share in self._with_callees.most_common(2 * _SHOWN)
            ],
        }
        lines = [f"{count} samples in {cpu:.1f} s of CPU; collecting garbage took {self._collected / cpu:.1%}"]
        for title, rows in sections.items():
            lines += ["", title, *(f"{share / count:7.1%}  {name}" for share, name in rows)]
        return "\n".join(lines) + "\n"

    def _sample(self, _: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        self._own[frame.f_code] += 1
        seen = set()
        while frame is not None and len(seen) < _DEEPEST:
            seen.add(frame.f_code)
            frame = frame.f_back
        self._with_callees.update(seen)

    def _collection(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected += time.thread_time() - self._collecting


class Calls:
    """Times and numbers of calls."""

    def __init__(self) -> None:
        self._profile = cProfile.Profile()

    def start(self) -> None:
        self._profile.enable()

    def stop(self) -> str:
        self._profile.disable()
        text = io.StringIO()
        stats = pstats.Stats(self._profile, stream=text).strip_dirs()
        stats.sort_stats("tottime").print_stats(_SHOWN)
        stats.sort_stats("cumulative").print_stats(2 * _SHOWN)
        return text.getvalue()


KINDS: Final[dict[str, type[Samples] | type[Calls]]] = {"sample": Samples, "calls": Calls}


def _package(file: str) -> str:
    """Returns the package of a file: `hpad/kube`, `aiohttp`, `asyncio`."""
    _, at, rest = file.rpartition("/site-packages/")
    if not at:
        _, at, rest = file.rpartition("/adapters/") if "/adapters/" in file else file.rpartition("/hpad/")
        rest = f"hpad/{rest}" if at == "/hpad/" else rest
    if not at:
        parts = Path(file).parts[-2:]
        return parts[0] if len(parts) > 1 else file
    return "/".join(rest.split("/")[: 2 if rest.startswith("hpad/") else 1])


def _name(code: CodeType) -> str:
    return f"{_package(code.co_filename)}: {Path(code.co_filename).name}:{code.co_firstlineno} {code.co_qualname}"


def main() -> int:
    kind, file = sys.argv[1:3]
    del sys.argv[1:3]
    profile = KINDS[kind]()
    running = False

    def toggle(*_: Any) -> None:
        nonlocal running
        running = not running
        if running:
            profile.start()
        else:
            Path(file).write_text(profile.stop(), encoding="utf-8")

    signal.signal(signal.SIGUSR2, toggle)
    from hpad.cli import main as hpad

    return hpad()


if __name__ == "__main__":
    sys.exit(main())
