"""Free ports for servers that take seconds to start."""

import socket

from hpad.lab.servers import ports


def test_free_ports_are_different_and_unused() -> None:
    found = ports.free(20)
    assert len(set(found)) == 20
    for port in found:
        with socket.create_server(("127.0.0.1", port)) as server:
            assert server.getsockname()[1] == port


def test_free_ports_are_below_the_ephemeral_range() -> None:
    has_others = ports.FIRST_EPHEMERAL > 10240
    assert max(ports.free(20)) < (ports.FIRST_EPHEMERAL if has_others else 65536)
