"""One container of a pod as a local process: start, supervise, restart, stop."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpad import clock as clocks
from hpad.lab.cluster import cgroups, hosts, probes, procfs, reaper, selectors, strategy
from hpad.lab.cluster.resources import Object

STEADY_SECONDS = 600.0
"""A run of this length makes the next delay before a restart the first one again, as in a kubelet."""

_NOT_STARTED = 128
_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


def environment(pod: Object, container: Object) -> dict[str, str]:
    """Returns the environment variables of a container; fieldRef may name any field of the pod.

    A value may refer to earlier variables as `$(NAME)`; an unknown reference stays as it is.
    """
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
    """Runs one container until `stop` or until its restart policy ends it; calls `changed` when its state changes.

    `record_normal` and `record_warning` record an event of that type; they take its reason and its message. A container
    without a command is simulated, because images are not run here: it is running and ready without a process.
    """

    pod: Object
    spec: Object
    directory: Path
    clock: clocks.Clock
    changed: Callable[[], None]
    record_normal: Callable[[str, str], None]
    record_warning: Callable[[str, str], None]
    host: hosts.Host
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
    def is_simulated(self) -> bool:
        return not self.spec.get("command")

    def stop(self, grace: float) -> None:
        """Sends SIGTERM now and SIGKILL after `grace` seconds; a later call can only shorten this period."""
        at = self.clock.monotonic() + grace
        self._stop_at = at if self._stop_at is None else min(at, self._stop_at)
        self._wake.set()

    async def run(self) -> None:
        """Starts and restarts the process; returns once it will not run again and none of its processes is left."""
        if self.is_simulated:
            await self._simulate()
            return
        first, longest = self.host.backoff
        backoff = first
        metadata = self.pod["metadata"]
        pod = f"{metadata['name']}_{metadata.get('namespace', '')}({metadata['uid']})"
        while self._stop_at is None:
            began = self.clock.monotonic()
            code = await self._run_once()
            if self.clock.monotonic() - began >= STEADY_SECONDS:
                backoff = first
            if self._stop_at is not None or not self._restarts_after(code):
                return
            self.last_state = {name: each for name, each in self.state.items() if name == "terminated"}
            message = f"back-off {backoff:g}s restarting failed container={self.name} pod={pod}"
            self._set_state({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
            self.record_warning("BackOff", f"Back-off restarting failed container {self.name} in pod {pod}")
            await self._wait(backoff)
            backoff = min(longest, backoff * 2)
            self.restarts += self._stop_at is None

    def _restarts_after(self, code: int) -> bool:
        policy = (self.pod.get("spec") or {}).get("restartPolicy", "Always")
        return policy == "Always" or (policy == "OnFailure" and code != 0)

    async def _simulate(self) -> None:
        """Reports the container as running and ready until `stop`, without a process, probes, usage or log."""
        started = strategy.timestamp(self.clock.now())
        self.ready = True
        self._set_state({"running": {"startedAt": started}})
        self.record_normal(
            "Pretended",
            f'Container {self.name} has no command: its image "{self.spec.get("image", "")}" is not run here, it is '
            "ready without a process; set spec.containers[].command to run one",
        )
        while self._stop_at is None:
            self._wake.clear()
            await self._wake.wait()
        self.ready = False
        ended = {"startedAt": started, "finishedAt": strategy.timestamp(self.clock.now())}
        self._set_state({"terminated": {"exitCode": 0, "reason": "Completed", **ended}})

    async def _run_once(self) -> int:
        """Runs the process once and returns its exit code, 128 when it could not be started."""
        group = None
        try:
            group = await self.host.enter(self._group, self.spec.get("resources") or {})
            process = await self._start(group)
        except OSError as problem:
            await _remove(group)
            return self._start_failed(problem)
        self.record_normal("Created", f"Created container: {self.name}")
        self.record_normal("Started", f"Started container {self.name}")
        self.pid = process.pid
        self.host.began(process.pid, group)
        started = strategy.timestamp(self.clock.now())
        probe = self.spec.get("readinessProbe")
        self.ready = probe is None
        self._set_state({"running": {"startedAt": started}})
        prober = asyncio.create_task(self._probe(probe)) if probe else None
        code = await self._supervise(process)
        if prober:
            prober.cancel()
            await asyncio.gather(prober, return_exceptions=True)
        await self._sweep(process.pid)
        self.host.ended(process.pid)
        is_out_of_memory = group is not None and await asyncio.to_thread(group.is_out_of_memory)
        await _remove(group)
        self.pid, self.ready = None, False
        ended = {"startedAt": started, "finishedAt": strategy.timestamp(self.clock.now())}
        reason = "OOMKilled" if is_out_of_memory else "Completed" if code == 0 else "Error"
        self._set_state({"terminated": {"exitCode": _exit_code(code), "reason": reason, **ended}})
        return code

    def _start_failed(self, problem: OSError) -> int:
        """Records a process that could not be started as containerd does: terminated with exit code 128."""
        program = _expanded(str(self.spec["command"][0]), environment(self.pod, self.spec))
        path = problem.filename if isinstance(problem.filename, str) else program
        message = f'exec: "{path}": {(problem.strerror or str(problem)).lower()}'
        now = strategy.timestamp(self.clock.now())
        ended = {"startedAt": "1970-01-01T00:00:00Z", "finishedAt": now}
        self._set_state({"terminated": {"exitCode": _NOT_STARTED, "reason": "StartError", "message": message, **ended}})
        self.record_warning("Failed", f"Error: {message}")
        return _NOT_STARTED

    @property
    def _group(self) -> str:
        """The name of the container's cgroup."""
        return f"{self.directory.name}_{self.name}"

    async def _start(self, group: cgroups.Group | None) -> asyncio.subprocess.Process:
        variables = environment(self.pod, self.spec)
        argv = [*self.spec["command"], *(self.spec.get("args") or [])]
        argv = [_expanded(str(word), variables) for word in argv]
        base = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.directory)}
        env = {**base, **variables, procfs.MARKER: self.mark, reaper.MARKER: self.host.reaping.mark}
        cwd = str(self.spec.get("workingDir") or self.directory)
        if group is not None:
            argv = await asyncio.to_thread(hosts.inside, group, argv, env["PATH"], cwd)
        log = await asyncio.to_thread(self.host.output, self.directory, self.name, self._identifier)
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

    @property
    def _identifier(self) -> str:
        """The identifier of the output in the journal: the pod, with the container if it has several."""
        pod = str(self.pod["metadata"]["name"])
        return pod if len(self.pod["spec"]["containers"]) == 1 else f"{pod}/{self.name}"

    async def _supervise(self, process: asyncio.subprocess.Process) -> int:
        try:
            return await self._exit_of(process)
        finally:
            if process.returncode is None:  # the task was cancelled: do not leave a process behind
                _signal_group(process.pid, signal.SIGKILL)

    async def _exit_of(self, process: asyncio.subprocess.Process) -> int:
        """Waits for the end of the process, stops it when `stop` was called, and returns its exit code."""
        exited = asyncio.ensure_future(process.wait())
        terminated = False
        while not exited.done():
            timeout = None
            if self._stop_at is not None:
                timeout = self._stop_at - self.clock.monotonic()
                if timeout <= 0:
                    _signal_group(process.pid, signal.SIGKILL)
                    break
                if not terminated:
                    # to the main process alone, as to process 1 of a container: it ends its children as it sees fit,
                    # while Celery's children would drop their tasks on a SIGTERM of their own
                    _signal(process.pid, signal.SIGTERM)
                    terminated = True
            self._wake.clear()
            woken = asyncio.ensure_future(self._wake.wait())
            await asyncio.wait({exited, woken}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            woken.cancel()
        return await exited

    async def _sweep(self, root: int) -> None:
        """Kills the rest of the container's processes after its main process has ended."""
        for pid in await asyncio.to_thread(procfs.stragglers, root, self.mark):
            _signal(pid, signal.SIGKILL)

    async def _probe(self, probe: Mapping[str, Any]) -> None:
        variables = environment(self.pod, self.spec)
        async for ready, problem in probes.results(probe, self.clock, variables, self.directory):
            if problem:
                self.record_warning("Unhealthy", f"Readiness probe failed: {problem}")
            if ready is not self.ready:
                self.ready = ready
                self.changed()

    async def _wait(self, seconds: float) -> None:
        self._wake.clear()
        if self._stop_at is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()

    def _set_state(self, state: Object) -> None:
        self.state = state
        self.changed()

    def status(self) -> Object:
        """Returns the entry of this container for status.containerStatuses."""
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
    """Converts the code of asyncio to that of a shell: 128 + the signal for a process that was killed."""
    return 128 - code if code < 0 else code


async def _remove(group: cgroups.Group | None) -> None:
    if group is not None:
        await asyncio.to_thread(group.remove)


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        _signal(pid, number)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
