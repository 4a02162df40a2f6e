"""Plain log lines for all tests of the controller."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True, scope="module")
def plain_logs() -> Iterator[None]:
    """Log lines without the local variables of tracebacks, which take long to print."""
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, plain], cache_logger_on_first_use=False)
    yield
    structlog.reset_defaults()
