"""HPAs decoded from documents."""

from typing import Any

from hpad.api import decode
from hpad.api.hpa import HorizontalPodAutoscaler


def decoded(document: Any) -> HorizontalPodAutoscaler:
    """Returns the HPA of a document without errors, of any version, as written: without defaults."""
    reading = decode.read(document)
    assert reading.hpa is not None
    assert not reading.errors, reading.errors
    return reading.hpa
