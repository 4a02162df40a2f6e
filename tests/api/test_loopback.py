"""Which hosts and URLs are this machine, to which a token may go without TLS."""

import pytest

from hpad.api.loopback import is_in_clear, is_loopback, names_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1", "::1%lo"])
def test_a_host_of_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "10.0.0.1", "0.0.0.0", "::", "localhost.example.com", "x.localhost", "127.0.0.1.nip.io"]
)
def test_a_host_that_may_be_another_machine(host: str) -> None:
    assert not is_loopback(host)


def test_urls() -> None:
    assert all(map(names_loopback, ("http://127.0.0.1:8473/x", "http://[::1]", "//localhost:80", "https://LOCALHOST")))
    assert not any(map(names_loopback, ("localhost", "http://[::1", "http://127.0.0.1@events.example.com")))
    assert is_in_clear("http://events.example.com")
    assert not any(map(is_in_clear, ("http://localhost:80/x", "https://events.example.com")))
