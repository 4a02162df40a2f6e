"""Variables that are nearly hpad's."""

from hpad.cli import run


def test_a_typing_error_is_told_from_what_services_put_there() -> None:
    ours = {"HPAD_WROKERS": "3", "HPAD_WORKERS": "4", "HPAD_CONFIG": "x", "HPAD_RABBITMQ_URL": "", "HOME": "/"}
    services = {
        "HPAD_SERVICE_HOST": "10.0.0.1",
        "HPAD_SERVICE_PORT": "80",
        "HPAD_SERVICE_PORT_HTTP": "80",
        "HPAD_PORT": "tcp://10.0.0.1:80",
        "HPAD_PORT_80_TCP": "tcp://10.0.0.1:80",
        "HPAD_PORT_80_TCP_ADDR": "10.0.0.1",
        "HPAD_PORT_80_TCP_PORT": "80",
        "HPAD_PORT_80_TCP_PROTO": "tcp",
    }
    assert run.misspelt(ours | services) == [("HPAD_WROKERS", "HPAD_WORKERS")]
