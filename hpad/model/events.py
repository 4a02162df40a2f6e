"""A Kubernetes Event, as far as a decision knows it: the recorder adds who, where and when."""

import msgspec

NORMAL = "Normal"
WARNING = "Warning"


class Event(msgspec.Struct, frozen=True, gc=False):
    type: str
    reason: str
    message: str
