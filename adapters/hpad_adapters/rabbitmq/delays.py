"""Queues whose messages no worker may take yet: they count where they are named, and never because a pattern matches.

Sources: Celery from 5.5 on (kombu/transport/native_delayed_delivery.py: level_name), dramatiq (dramatiq/common.py:
dq_name, and xq_name of dead letters), NServiceBus (DelayInfrastructure.cs: LevelName).
"""

import re

EXAMPLES = "celery_delayed_0 and tasks.DQ"
_NAMES = re.compile(r"(.+_)?celery_delayed_\d{1,2}|.+\.[DX]Q|nsb\.(v2\.)?delay-level-\d{2}", re.DOTALL)


def keeps_for_later(name: str) -> bool:
    """Returns whether a queue of this name holds messages that are not due, or dead letters of dramatiq."""
    return _NAMES.fullmatch(name) is not None
