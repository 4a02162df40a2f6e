"""One container of a pod as a local process: start, supervise, restart, stop."""

import asyncio
import os
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpad import clock as clocks
from hpad.lab.cluster import podlogs, probes, procfs, reaper, selectors, strategy
from hpad.lab.cluster.resources import Object

FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 10.0
"""Seconds before a restart: doubles from the first to the longest (a real kubelet waits 10 s to 5 min)."""

_NOT_STARTED = 128
_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


def environment(pod: Object, container: Object) -> dict[str, str]:
    """The variables of a container: a value, or metadata.name, .namespace, .uid and status.podIP by fieldRef."""
    found: dict[str, str] = {}
    for entry in container.get("env") or []:
        path = selectors.read_path(entry, ".valueFrom.fieldRef.fieldPath")
        value = selectors.read_path(pod, path) if path else entry.get("value", "")
        found[entry["name"]] = _expanded(str(value or ""), found)
    return found


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda match: variables.get(match[1], match[0]), text)


@dataclass(eq=False, slots=True)
class Container:
    """Runs until told to stop or until its restart policy lets it rest; calls `changed` on each turn.

    `tell` and `warn` take the reason and the message of an event that a kubelet would write, of type Normal and
    Warning. A container without a command, which only names an image, is pretended: running and ready, no process.
    """

    pod: Object
    spec: Object
    directory: Path
    clock: clocks.Clock
    changed: Callable[[], None]
    tell: Callable[[str, str], None]
    warn: Callable[[str, str], None]
    reaping: reaper.Reaper
    state: Object = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last_state: Object = field(default_factory=dict)
    restarts: int = 0
    ready: bool = False
    pid: int | None = None
    _stop_at: float | None = None
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def mark(self) -> str:
        return f"{self.pod['metadata']['uid']}/{self.name}"

    @property
    def is_pretended(self) -> bool:
        return not self.spec.get("command")

    def stop(self, grace: float) -> None:
        """SIGTERM now, SIGKILL after `grace` seconds; a later call may only shorten that."""
        at = self.clock.monotonic() + grace
        self._stop_at = at if self._stop_at is None else min(at, self._stop_at)
        self._wake.set()

    async def run(self) -> None:
        """Start and restart the process; returns when it is at rest and nothing of it is left."""
        if self.is_pretended:
            await self._pretend()
            return
        backoff = FIRST_BACKOFF
        metadata = self.pod["metadata"]
        pod = f"{metadata['name']}_{metadata.get('namespace', '')}({metadata['uid']})"
        while self._stop_at is None:
            code = await self._run_once()
            if self._stop_at is not None or not self._restarts_after(code):
                return
            self.last_state = {name: each for name, each in self.state.items() if name == "terminated"}
            message = f"back-off {backoff:g}s restarting failed container={self.name} pod={pod}"
            self._turn({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
            self.warn("BackOff", f"Back-off restarting failed container {self.name} in pod {pod}")
            await self._wait(backoff)
            backoff = min(LONGEST_BACKOFF, backoff * 2)
            self.restarts += self._stop_at is None

    def _restarts_after(self, code: int) -> bool:
        policy = (self.pod.get("spec") or {}).get("restartPolicy", "Always")
        return policy == "Always" or (policy == "OnFailure" and code != 0)

    async def _pretend(self) -> None:
        """Be there until told to stop, without a process: no probe is asked, nothing is used, the log is empty."""
        started = strategy.timestamp(self.clock.now())
        self.ready = True
        self._turn({"running": {"startedAt": started}})
        self.tell(
            "Pretended",
            f'Container {self.name} has no command: its image "{self.spec.get("image", "")}" is not run here, it is '
            "ready without a process; set spec.containers[].command to run one",
        )
        while self._stop_at is None:
            self._wake.clear()
            await self._wake.wait()
        self.ready = False
        ended = {"startedAt": started, "finishedAt": strategy.timestamp(self.clock.now())}
        self._turn({"terminated": {"exitCode": 0, "reason": "Completed", **ended}})

    async def _run_once(self) -> int:
        """One life of the process: its exit code, 128 when it could not even be started."""
        try:
            process = await self._start()
        except OSError as problem:
            return self._could_not(problem)
        self.tell("Created", f"Created container: {self.name}")
        self.tell("Started", f"Started container {self.name}")
        self.pid = process.pid
        self.reaping.began(process.pid)
        started = strategy.timestamp(self.clock.now())
        probe = self.spec.get("readinessProbe")
        self.ready = probe is None
        self._turn({"running": {"startedAt": started}})
        prober = asyncio.create_task(self._probe(probe)) if probe else None
        code = await self._supervise(process)
        if prober:
            prober.cancel()
            await asyncio.gather(prober, return_exceptions=True)
        await self._sweep(process.pid)
        self.reaping.ended(process.pid)
        self.pid, self.ready = None, False
        ended = {"startedAt": started, "finishedAt": strategy.timestamp(self.clock.now())}
        reason = "Completed" if code == 0 else "Error"
        self._turn({"terminated": {"exitCode": _exit_code(code), "reason": reason, **ended}})
        return code

    def _could_not(self, problem: OSError) -> int:
        """Note a process that could not be started, as a container runtime does: it ended, with 128."""
        program = _expanded(str(self.spec["command"][0]), environment(self.pod, self.spec))
        place = problem.filename if isinstance(problem.filename, str) else program
        message = f'exec: "{place}": {(problem.strerror or str(problem)).lower()}'
        now = strategy.timestamp(self.clock.now())
        ended = {"startedAt": "1970-01-01T00:00:00Z", "finishedAt": now}
        self._turn({"terminated": {"exitCode": _NOT_STARTED, "reason": "StartError", "message": message, **ended}})
        self.warn("Failed", f"Error: {message}")
        return _NOT_STARTED

    async def _start(self) -> asyncio.subprocess.Process:
        variables = environment(self.pod, self.spec)
        argv = [*self.spec["command"], *(self.spec.get("args") or [])]
        argv = [_expanded(str(word), variables) for word in argv]
        base = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.directory)}
        env = {**base, **variables, procfs.MARKER: self.mark, reaper.MARKER: self.reaping.mark}
        cwd = str(self.spec.get("workingDir") or self.directory)
        log = await asyncio.to_thread(podlogs.begin, self.directory, self.name)
        try:
            return await asyncio.create_subprocess_exec(
                *argv,
                env=env,
                cwd=cwd,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            log.close()

    async def _supervise(self, process: asyncio.subprocess.Process) -> int:
        try:
            return await self._exit_of(process)
        finally:
            if process.returncode is None:  # cancelled: whatever ends this task must not leave a process behind
                _signal_group(process.pid, signal.SIGKILL)

    async def _exit_of(self, process: asyncio.subprocess.Process) -> int:
        """The exit code, once the process has ended by itself or was told to."""
        exited = asyncio.ensure_future(process.wait())
        asked = False
        while not exited.done():
            timeout = None
            if self._stop_at is not None:
                timeout = self._stop_at - self.clock.monotonic()
                if timeout <= 0:
                    _signal_group(process.pid, signal.SIGKILL)
                    break
                if not asked:
                    _signal_group(process.pid, signal.SIGTERM)
                    asked = True
            self._wake.clear()
            woken = asyncio.ensure_future(self._wake.wait())
            await asyncio.wait({exited, woken}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            woken.cancel()
        return await exited

    async def _sweep(self, root: int) -> None:
        """The main process is gone: so goes the rest of the container."""
        for pid in await asyncio.to_thread(procfs.stragglers, root, self.mark):
            _signal(pid, signal.SIGKILL)

    async def _probe(self, probe: Mapping[str, Any]) -> None:
        variables = environment(self.pod, self.spec)
        async for ready, problem in probes.results(probe, self.clock, variables, self.directory):
            if problem:
                self.warn("Unhealthy", f"Readiness probe failed: {problem}")
            if ready is not self.ready:
                self.ready = ready
                self.changed()

    async def _wait(self, seconds: float) -> None:
        self._wake.clear()
        if self._stop_at is None:
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _turn(self, state: Object) -> None:
        self.state = state
        self.changed()

    def status(self) -> Object:
        """The entry of status.containerStatuses."""
        return {
            "name": self.name,
            "state": self.state,
            "lastState": self.last_state,
            "ready": self.ready,
            "restartCount": self.restarts,
            "image": self.spec.get("image", ""),
            "imageID": "",
            "started": "running" in self.state,
            **({"containerID": f"process://{self.pid}"} if self.pid else {}),
        }


def _exit_code(code: int) -> int:
    """As a shell shows it: 128 + the signal for a process that was killed."""
    return 128 - code if code < 0 else code


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        _signal(pid, number)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
