"""Connects to the hpad of a cluster by `kubectl port-forward`, or at the address that the user names."""

import argparse
import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from hpad.cli import client
from hpad.cli.client import Direct
from hpad.cli.fetch import HpadReader, Refusal
from hpad.cli.kubectl import discovery, flags
from hpad.cli.kubectl.command import Forward, Kubectl
from hpad.cli.kubectl.discovery import HpadPod
from hpad.cli.output import Failure, WrongUse

_REPLICAS_PATH: Final = "/api/v1/replicas"
_STANDBY: Final = "standby"


class HpadConnection(NamedTuple):
    """The hpad that decides, and the namespace of the HPAs (None: all)."""

    reader: HpadReader
    namespace: str | None


def note(text: str) -> None:
    """Prints a line to standard error."""
    print(f"kubectl-hpad: {text}", file=sys.stderr)


@contextlib.contextmanager
def opened(args: argparse.Namespace) -> Iterator[HpadConnection]:
    """Connects, and ends all children of this process with the block. Raises Failure, which says what was tried."""
    program = Kubectl(tuple(flags.chosen(args)))
    namespace = None if args.all_namespaces else flags.namespace(args, program)
    if _is_direct(args):
        if args.verbose and args.address is None:
            note(f"hpad is reached at {client.listens()}, the address of {client.LISTEN}")
        yield HpadConnection(client.reader(args), namespace)
        return
    if args.token_file is not None and args.service is None:
        # Anyone who may create a Service or pod in some namespace can give it hpad's label.
        raise WrongUse("--token-file: name hpad's Service with --service NAMESPACE/NAME: no other one gets the token")
    access = _access(args)
    pods = discovery.find(program, args.service, namespace or "default")
    with contextlib.ExitStack() as stack:
        reader = Deciding([Forwarded(program, pod, access, stack) for pod in pods])
        if args.verbose:
            note(f"hpad is reached by a port-forward to {reader.chosen()}")
        yield HpadConnection(reader, namespace)


def _is_direct(args: argparse.Namespace) -> bool:
    """Whether hpad is asked at an address: that of --address, or of HPAD_LISTEN where no flag names a cluster."""
    names_cluster = args.service is not None or any(flags.chosen(args))
    return args.address is not None or (not names_cluster and bool(client.listens()))


def _access(args: argparse.Namespace) -> Direct:
    """Returns what requests have besides their address; raises Failure if a file of the command line cannot be used."""
    token = None if args.token_file is None else client.read_token(args.token_file)
    return Direct("", client.tls_context(args), token, host=args.server_name or "")


class Forwarded:
    """A Reader of one pod. Starts kubectl at the first request; `stack` ends it."""

    def __init__(self, kubectl: Kubectl, pod: HpadPod, access: Direct, stack: contextlib.ExitStack) -> None:
        self._kubectl = kubectl
        self._pod = pod
        self._access = access
        self._stack = stack
        self._opened: Forward | None = None

    def __str__(self) -> str:
        return str(self._pod)

    def get(self, path: str) -> Any:
        """See Reader.get."""
        try:
            forward = self._forward()
        except Failure as failure:
            raise Failure(f"{self}: {failure}") from None
        try:
            return self._direct(forward.port).get(path)
        except Refusal:
            raise
        except Failure as failure:
            said = forward.said()
            raise Failure(f"{failure}{f' ({said})' if said else ''}") from None

    def _forward(self) -> Forward:
        if self._opened is None:
            pod = self._pod
            self._opened = self._stack.enter_context(self._kubectl.forwarding(pod.namespace, pod.name, pod.port))
        self._opened.require()  # another process on its port must get no token
        return self._opened

    def _direct(self, port: int) -> Direct:
        pod, access = self._pod, self._access
        host = access.host or f"{pod.service or pod.name}.{pod.namespace}.svc"
        return dataclasses.replace(access, url=f"{pod.scheme}://127.0.0.1:{port}", host=host, name=str(self), advice="")


class Deciding:
    """A Reader of the replica that decides at the time of each request: with leader election, the leader."""

    def __init__(self, replicas: Sequence[Forwarded]) -> None:
        self._replicas = list(replicas)

    def __str__(self) -> str:
        return str(self._replicas[0])

    def get(self, path: str) -> Any:
        """See Reader.get."""
        return self.chosen().get(path)

    def chosen(self) -> Forwarded:
        """Returns the replica that decides; raises Failure if none does, which says what each one is or answers."""
        found: list[str] = []
        for replica in self._replicas:
            try:
                role = _role(replica)
            except Failure as failure:
                found.append(str(failure))
                continue
            if role != _STANDBY:
                self._replicas.sort(key=lambda each: each is not replica)  # it is asked first next time
                return replica
            found.append(f"{replica} is a standby")
        raise Failure("no hpad that decides can be reached:" + "".join(f"\n  - {each}" for each in found))


def _role(replica: HpadReader) -> str:
    known = replica.get(_REPLICAS_PATH)
    roles = {each["identity"]: each["role"] for each in known["items"]}
    return str(roles.get(known["self"], ""))
