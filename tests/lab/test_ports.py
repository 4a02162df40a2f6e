"""Ports for servers that take their time to start."""

import socket

from hpad.lab.servers import ports


def test_they_are_different_and_nobody_listens() -> None:
    found = ports.free(20)
    assert len(set(found)) == 20
    for port in found:
        with socket.create_server(("127.0.0.1", port)) as server:
            assert server.getsockname()[1] == port


def test_no_connection_gets_one_of_them_where_there_are_others() -> None:
    others = ports.FIRST_OF_ANY > 10240
    assert max(ports.free(20)) < (ports.FIRST_OF_ANY if others else 65536)
