"""Running kubectl: its output, errors and end. A shell script stands in for kubectl."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpad.cli.kubectl.command import Forbidden, Kubectl
from hpad.cli.output import Failure


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Kubectl]:
    """Puts a shell script named kubectl on the PATH."""

    def write(script: str, *, flags: tuple[str, ...] = ()) -> Kubectl:
        file = tmp_path / "kubectl"
        file.write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
        file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
        return Kubectl(flags)

    return write


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def await_end(*pids: int) -> None:
    deadline = time.monotonic() + 60
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, f"{pids} still run"
        time.sleep(0.01)


def test_the_flags_come_before_the_command(kubectl) -> None:
    run = kubectl('echo "$@"', flags=("--context=x", "--as=jane"))
    assert run.output("config", "view") == "--context=x --as=jane config view\n"


def test_an_error_is_that_of_kubectl(kubectl) -> None:
    run = kubectl('echo "error: context \\"x\\" does not exist" >&2; exit 1')
    with pytest.raises(Failure, match=r'^kubectl config: context "x" does not exist$'):
        run.output("config")


def test_the_end_of_a_long_error_is_shown_on_one_line_without_control_characters(kubectl) -> None:
    run = kubectl("seq 10000 >&2; printf 'the \\033[31mreason\\r\\n' >&2; exit 1")
    with pytest.raises(Failure) as failed:
        run.output("config")
    assert str(failed.value).endswith(" 9999 10000 the \\u001b[31mreason")
    assert len(str(failed.value)) < 3000


def test_log_lines_of_kubectl_are_shown_without_their_head(kubectl) -> None:
    head = "E1123 08:02:02.702082    7673 proxy_server.go:147] "
    run = kubectl(f"echo '{head}getting credentials: exec: exit 1' >&2; exit 1")
    with pytest.raises(Failure, match=r"^kubectl config: getting credentials: exec: exit 1$"):
        run.output("config")


def test_log_lines_before_an_error_are_left_out(kubectl) -> None:
    """As kubectl 1.32 writes them, where no server answers."""
    line = 'E1123 08:02:02.702082    7673 memcache.go:265] "Unhandled Error" err="connection refused"'
    refused = "The connection to the server localhost:8080 was refused - did you specify the right host or port?"
    run = kubectl(f"echo '{line}' >&2; echo '{line}' >&2; echo '{refused}' >&2; exit 1")
    with pytest.raises(Failure) as failed:
        run.output("get")
    assert str(failed.value) == f"kubectl get: {refused}"


def test_the_reason_that_kubectl_logs_of_a_lost_connection_is_kept(kubectl) -> None:
    """As kubectl 1.32 writes it, where nothing listens on the port of the pod."""
    log = 'E1123 08:02:02.702082    7673 portforward.go:424] "Unhandled Error" err="forwarding 8473: refused"'
    run = kubectl(f"echo '{log}' >&2; echo 'error: lost connection to pod' >&2; exit 1")
    with pytest.raises(Failure) as failed, run.forwarding("hpad", "a", 8473):
        pass
    text = '"Unhandled Error" err="forwarding 8473: refused" error: lost connection to pod'
    assert str(failed.value) == f"kubectl port-forward: {text}"


def test_an_error_without_a_text_is_said_to_have_none(kubectl) -> None:
    with pytest.raises(Failure, match=r"^kubectl config ends without an error message$"):
        kubectl("exit 3").output("config")


def test_a_missing_kubectl_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failure, match="kubectl cannot be started: No such file or directory; it must be on the PATH"):
        Kubectl().output("config")


def test_what_the_user_may_not_do_is_an_error_of_its_own(kubectl) -> None:
    run = kubectl('echo "Error from server (Forbidden): services is forbidden: User \\"jane\\"" >&2; exit 1')
    with pytest.raises(Forbidden, match=r'^services is forbidden: User "jane"$'):
        run.output("get", "services")


def test_a_port_is_forwarded_until_the_end_of_the_block(kubectl) -> None:
    run = kubectl('echo "$@"; echo "Forwarding from 127.0.0.1:$$ -> 8473"; exec sleep 600')
    with run.forwarding("hpad", "a", 8473) as forward:
        assert is_alive(forward.port)
        forward.require()
    await_end(forward.port)


def test_a_forward_that_ends_before_it_listens_is_an_error(kubectl) -> None:
    run = kubectl("echo starting; echo 'error: no' >&2; exit 1")
    with pytest.raises(Failure, match=r"^kubectl port-forward: no$"), run.forwarding("hpad", "a", 8473):
        pytest.fail("it forwards nothing")


POD = '{"items": [{"metadata": {"namespace": "hpad", "name": "a"}, "spec": {}, "status": {"phase": "Running"}}]}'


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_plugin_that_is_stopped_ends_its_port_forward(kubectl, tmp_path: Path, number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # it accepts a connection, and never answers
        forward = f"echo 'Forwarding from 127.0.0.1:{server.getsockname()[1]} -> 8473'; exec sleep 600"
        lists = f"""services) echo '{{"items": []}}';; pods) echo '{POD}';;"""
        kubectl(f"[ $1 = config ] && exit 0\ncase $2 in {lists} *) echo $$ > pid; {forward};; esac")
        command = [sys.executable, "-c", "import sys; from hpad.cli import kubectl; sys.exit(kubectl.main(['status']))"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            server.settimeout(60)
            connection, _ = server.accept()
            with connection:
                process.send_signal(number)
                out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + number, b"", b"")
    await_end(int((tmp_path / "pid").read_text()))
