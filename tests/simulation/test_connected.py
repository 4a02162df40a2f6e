"""The files of a Prometheus server that is queried: its token and its authorities."""

from pathlib import Path

import pytest

from hpad.simulation.history import HistoryError
from hpad.simulation.prometheus import QueriedPrometheus, connected

URL = "https://127.0.0.1:9"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "has 0 words, and a token is one"),
        (b"one\ntwo\n", "has 2 words, and a token is one"),
        (b"\xff", "cannot be read: is not ASCII"),
    ],
)
def test_a_file_without_a_token_is_named(tmp_path: Path, content: bytes, error: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(HistoryError) as failure, connected(QueriedPrometheus(URL, token_file=file)):
        pass
    assert str(failure.value) == f"{file}: {error}"


def test_a_token_file_without_end_is_refused() -> None:
    with (
        pytest.raises(HistoryError, match=r"^/dev/zero: cannot be read: larger than 1 MiB$"),
        connected(QueriedPrometheus(URL, token_file=Path("/dev/zero"))),
    ):
        pass


@pytest.mark.parametrize("content", [b"", b"no certificate", None])
def test_a_file_without_authorities_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(HistoryError) as failure, connected(QueriedPrometheus(URL, ca_file=file)):
        pass
    assert str(failure.value).startswith(f"{file}: has no certificate authorities: ")


def test_a_token_may_end_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    with connected(QueriedPrometheus(URL, token_file=file)):
        pass
