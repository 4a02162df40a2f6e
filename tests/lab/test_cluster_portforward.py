"""The subresource `portforward` of pods, used by real kubectls; and the frames of SPDY."""

import asyncio
import contextlib
import re
import struct
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support import free_ports
from support.kubectl_binaries import EACH, SECONDS, Kubectl

from hpad.lab.cluster import Cluster, spdy, tls

pytest_plugins = ("support.kubectl_fixtures",)
LARGE = bytes(range(256)) * 4096


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    """A server that sends each line back in upper case, and a megabyte for the line `large`; returns its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(LARGE if line == b"large\n" else line.upper())
            await writer.drain()
        writer.write(b"bye\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@contextlib.asynccontextmanager
async def forwarded(kubectl: Kubectl, pod: str, port: int) -> AsyncIterator[tuple[int, asyncio.subprocess.Process]]:
    """Starts `kubectl port-forward`; returns the local port."""
    process = await kubectl.start("port-forward", "--address=127.0.0.1", f"pod/{pod}", f":{port}")
    try:
        async with asyncio.timeout(SECONDS):
            assert process.stdout is not None
            line = (await process.stdout.readline()).decode()
        found = re.match(r"Forwarding from 127\.0\.0\.1:(\d+) -> ", line)
        assert found is not None, line
        yield int(found[1]), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def pod(cluster: Cluster, phase: str = "Running", node: str = "here") -> None:
    spec = {"containers": [{"name": "app", "image": "app:1"}], "nodeName": node}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec, "status": {"phase": phase}}
    )


@pytest.fixture(params=["http", "https"])
async def kubectl(kubectl_path: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Kubectl]:
    """A kubectl for a cluster with a pod."""
    files = await tls.made(tmp_path) if request.param == "https" else None
    async with Cluster(kubelet=False, tls=files, authorization=files is not None) as cluster:
        pod(cluster)
        await cluster.kubeconfig(tmp_path / "kubeconfig")
        yield Kubectl(kubectl_path, tmp_path)


async def ask(port: int, text: bytes, count: int) -> bytes:
    """Sends a text on a new connection; returns `count` bytes of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    try:
        async with asyncio.timeout(SECONDS):
            return await reader.readexactly(count)
    finally:
        writer.close()


@EACH
async def test_connections_are_forwarded_at_once_and_one_after_the_other(kubectl: Kubectl, echo: int) -> None:
    async with forwarded(kubectl, "a", echo) as (port, _):
        assert await ask(port, b"hello\n", 6) == b"HELLO\n"
        answers = await asyncio.gather(*(ask(port, f"number {n}\n".encode(), 9) for n in range(8)))
        assert answers == [f"NUMBER {n}\n".encode() for n in range(8)]
        assert await ask(port, b"large\n", len(LARGE)) == LARGE


async def test_the_end_of_the_input_is_passed_on(kubectl: Kubectl, echo: int) -> None:
    async with forwarded(kubectl, "a", echo) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello\n")
        writer.write_eof()
        async with asyncio.timeout(SECONDS):
            assert await reader.read() == b"HELLO\nbye\n"
        writer.close()


async def test_a_port_where_nothing_listens_is_an_error(kubectl: Kubectl) -> None:
    with free_ports.port() as unused:
        async with forwarded(kubectl, "a", unused) as (port, process):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await ask(port, b"hello\n", 6)
            process.terminate()
            assert process.stderr is not None
            error = (await process.stderr.read()).decode()
    assert f"dial tcp4 127.0.0.1:{unused}: connect: connection refused" in error


async def test_a_pod_that_does_not_run_or_is_on_no_node_has_no_ports(kubectl_path: str, tmp_path: Path) -> None:
    """The second text is that of a real API server, as `tests/kube/contract/test_plugin.py` has it."""
    async with Cluster(kubelet=False) as cluster:
        await cluster.kubeconfig(tmp_path / "kubeconfig")
        kubectl = Kubectl(kubectl_path, tmp_path)
        pod(cluster, "Pending")
        error = await kubectl.refused("port-forward pod/a :80 --pod-running-timeout=1s")
        assert "pod is not running" in error or "timed out waiting for the condition" in error
        pod(cluster, node="")
        assert "pod a does not have a host assigned" in await kubectl.refused("port-forward pod/a :80")


async def test_the_cluster_stops_while_ports_are_forwarded(kubectl_path: str, tmp_path: Path, echo: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(kubelet=False))
        pod(cluster)
        await cluster.kubeconfig(tmp_path / "kubeconfig")
        async with forwarded(Kubectl(kubectl_path, tmp_path), "a", echo) as (port, process):
            assert await ask(port, b"hello\n", 6) == b"HELLO\n"
            async with asyncio.timeout(SECONDS):
                await stack.aclose()
                await process.wait()


def frame(kind: int, body: bytes, flags: int = 0, version: int = 3) -> bytes:
    return struct.pack(">HHI", 0x8000 | version, kind, flags << 24 | len(body)) + body


async def frames(data: bytes) -> list[spdy.Frame]:
    """Returns the frames of a connection that receives this."""
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    connection = spdy.Connection(reader, None)  # type: ignore[arg-type]
    found = []
    while (each := await connection.read()) is not None:
        found.append(each)
    return found


def block(deflate: "zlib._Compress", **headers: str) -> bytes:
    """Returns compressed headers in the format of the draft, section 2.6.10."""
    texts = [text.encode() for pair in headers.items() for text in pair]
    plain = struct.pack(">I", len(headers)) + b"".join(struct.pack(">I", len(text)) + text for text in texts)
    return deflate.compress(plain) + deflate.flush(zlib.Z_SYNC_FLUSH)


async def test_frames_are_read() -> None:
    deflate = zlib.compressobj(zdict=spdy.DICTIONARY)
    first, second = block(deflate, Streamtype="data", port="80"), block(deflate, Streamtype="error")
    opened = [
        frame(spdy.SYN_STREAM, struct.pack(">IIH", number, 0, 0) + each) for number, each in ((1, first), (3, second))
    ]
    data = struct.pack(">II", 1, 1 << 24 | 5) + b"hello"
    ping, reset = frame(spdy.PING, struct.pack(">I", 7)), frame(spdy.RST_STREAM, struct.pack(">II", 3, 5))
    assert await frames(b"".join([*opened, data, ping, reset])) == [
        spdy.Frame(spdy.SYN_STREAM, 1, headers={"streamtype": "data", "port": "80"}),
        spdy.Frame(spdy.SYN_STREAM, 3, headers={"streamtype": "error"}),
        spdy.Frame(spdy.DATA, 1, is_last=True, data=b"hello"),
        spdy.Frame(spdy.PING, 7),
        spdy.Frame(spdy.RST_STREAM, 3),
    ]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 12])
async def test_a_frame_that_ends_early_is_the_end(length: int) -> None:
    assert await frames(frame(spdy.PING, b"\0\0\0\7\0")[:length]) == []


@pytest.mark.parametrize(
    "data",
    [
        frame(spdy.PING, b"\0\0\0\7", version=2),
        frame(spdy.SYN_STREAM, b"\0" * 10 + b"no zlib"),
        frame(spdy.SYN_STREAM, b"\0" * 10 + zlib.compress(struct.pack(">II", 1, 99))),
        frame(spdy.SYN_STREAM, b"\0" * 10 + zlib.compress(b"")),
    ],
)
async def test_other_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(spdy.SpdyError):
        await frames(data)
