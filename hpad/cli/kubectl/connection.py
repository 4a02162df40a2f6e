"""Connects to the hpad of a cluster: the address that the user names, the API server's proxy, or a port-forward."""

import argparse
import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from hpad.cli import client
from hpad.cli.client import Direct
from hpad.cli.fetch import Reader
from hpad.cli.kubectl import apiserver, discovery, flags
from hpad.cli.kubectl.apiserver import ApiServer
from hpad.cli.kubectl.children import Kubectl
from hpad.cli.kubectl.discovery import Found, Pod
from hpad.cli.kubectl.fleet import Deciding, Fleet, deciding
from hpad.cli.kubectl.forwarded import Forwarded
from hpad.cli.kubectl.proxied import Patience, Proxied, Sampled
from hpad.cli.output import Failure, WrongUse

PROXY: Final = "proxy"
PORT_FORWARD: Final = "port-forward"
ADDRESS: Final = "address"
_MOST_WARNINGS: Final = 64


class Way(NamedTuple):
    """A way to hpad: its name for messages, and the replicas that it leads to."""

    name: str
    replicas: Sequence[Reader]


class Connection(NamedTuple):
    """The replicas of hpad that decide, and the namespace of the HPAs (None: all).

    `lasting` is for commands that go on: it asks the replicas that decide at the time of each request.
    """

    fleet: Fleet
    namespace: str | None
    lasting: Reader


def note(text: str) -> None:
    """Prints a line to standard error."""
    print(f"kubectl-hpad: {text}", file=sys.stderr)


def warn(text: str) -> None:
    """Prints a warning to standard error."""
    note(f"warning: {text}")


def _once() -> Callable[[str], None]:
    """Returns a function that prints each warning once."""
    return functools.lru_cache(maxsize=_MOST_WARNINGS)(warn)


@contextlib.contextmanager
def opened(args: argparse.Namespace) -> Iterator[Connection]:
    """Connects, and ends all children of this process with the block. Raises Failure, which says what was tried."""
    program = flags.kubectl(args)
    namespace = None if args.all_namespaces else flags.namespace(args, program)
    with contextlib.ExitStack() as stack:
        if _is_direct(args):
            if args.verbose and args.address is None:
                note(f"hpad is reached at {client.listens()}, the address of {client.LISTEN}")
            fleet = Fleet([client.reader(args)], warn)
            yield Connection(fleet, namespace, fleet)
        else:
            fleet, way = _in_cluster(args, program, namespace or "default", stack)
            yield Connection(fleet, namespace, Deciding(way.replicas, _once()))


def _is_direct(args: argparse.Namespace) -> bool:
    """Whether hpad is asked at an address: that of --address, or of HPAD_LISTEN where no flag names a cluster."""
    if args.via not in (None, ADDRESS) or args.address is not None:
        return args.via in (None, ADDRESS)
    names_cluster = args.service is not None or any(flags.chosen(args))
    return not names_cluster and bool(client.listens())


def _in_cluster(
    args: argparse.Namespace, program: Kubectl, namespace: str, stack: contextlib.ExitStack
) -> tuple[Fleet, Way]:
    _check(args)
    connect = _forwarding(args)
    api = stack.enter_context(apiserver.opened(program))
    found = discovery.find(api, args.service, namespace)
    ways = [*_proxies(api, found, Patience(endless=args.via == PROXY))] if args.via != PORT_FORWARD else []
    if args.via != PROXY:
        pods = [Forwarded(program, pod, functools.partial(connect, found), stack) for pod in found.pods]
        ways.append(Way("port-forward", pods))
    return _first(ways, found, args.verbose)


def _check(args: argparse.Namespace) -> None:
    """Raises Failure for flags that contradict each other."""
    if args.via == ADDRESS:
        raise WrongUse("--via address: name it with --address HOST:PORT or HPAD_LISTEN")
    if args.token_file is not None and args.service is None:
        # Anyone who may create a Service or pod in some namespace can give it hpad's label.
        raise WrongUse("--token-file: name hpad's Service with --service NAMESPACE/NAME: no other one gets the token")


def _proxies(api: ApiServer, found: Found, patience: Patience) -> Iterator[Way]:
    """Yields the ways through the API server. Only the pods can be told apart, so several of them come first."""
    pods = Way("the API server's proxy to the pods", [Proxied(api, pod, patience) for pod in found.pods])
    if found.service is None:
        yield pods
        return
    direct = Proxied(api, found.service, patience)
    service = Way(
        f"the API server's proxy to the {found.service}", [direct if len(found.pods) == 1 else Sampled(direct)]
    )
    yield from (pods, service) if len(found.pods) > 1 else (service, pods)


def _forwarding(args: argparse.Namespace) -> Callable[[Found, str, Pod], Direct]:
    """Returns what makes a Reader of a forwarded port; raises Failure if a file of the command line cannot be used."""
    context = client.tls_context(args)
    token = None if args.token_file is None else client.read_token(args.token_file)

    def connect(found: Found, address: str, pod: Pod) -> Direct:
        owner = pod.name if found.service is None else found.service.name
        host = args.server_name or f"{owner}.{pod.namespace}.svc"
        return Direct(
            f"{pod.scheme}://{address}",
            context if pod.scheme == "https" else None,
            token,
            host=host,
            name=f"{pod} by port-forward",
            advice="",
        )

    return connect


def _first(ways: Sequence[Way], found: Found, verbose: bool) -> tuple[Fleet, Way]:
    """Returns the first way on which a replica answers, and its Fleet; raises Failure, with a line for each way."""
    failures = [f"you may not {each}" for each in found.denied]
    for way in ways:
        if not way.replicas:
            failures.append(f"{way.name}: there is no running pod to be seen")
            continue
        try:
            fleet = deciding(way.replicas, warn)
        except Failure as failure:
            failures.append(f"{way.name}: {failure}")
            continue
        if verbose:
            _tell(way.name, fleet, failures)
        return fleet, way
    raise Failure("hpad cannot be reached:" + "".join(f"\n  - {each}" for each in failures))


def _tell(name: str, fleet: Fleet, failures: Sequence[str]) -> None:
    for each in failures:
        note(each)
    note(f"hpad is reached by {name}; asked: {', '.join(str(each) for each in fleet.replicas)}")
