"""What the daemon is told: a YAML file, then `HPAD_*` of the environment, then flags; the later one wins.

Every field is read by one parser, whichever way it came, so that "15s" means the same everywhere. What is wrong is
named with where it stood (file, variable or flag), the field, the value, and what would be right; what belongs to an
adapter (and may be a secret) is never repeated.
"""

from hpad.settings.origins import load, origins
from hpad.settings.sections import (
    ELECTION,
    JOINED,
    OF_SOURCES,
    PARSERS,
    REMOVED,
    RENAMED,
    SERVING,
    TUNABLES,
    of_adapter,
)
from hpad.settings.shape import (
    BUILT_IN_SOURCES,
    HISTORY_FILE,
    LOG_FORMATS,
    LOG_LEVELS,
    RABBITMQ_METRICS,
    STORES,
    Match,
    Route,
    Settings,
    SettingsError,
    SourceLimits,
    SourceSettings,
    StoreSettings,
)

__all__ = [
    "BUILT_IN_SOURCES",
    "ELECTION",
    "HISTORY_FILE",
    "JOINED",
    "LOG_FORMATS",
    "LOG_LEVELS",
    "OF_SOURCES",
    "PARSERS",
    "RABBITMQ_METRICS",
    "REMOVED",
    "RENAMED",
    "SERVING",
    "STORES",
    "TUNABLES",
    "Match",
    "Route",
    "Settings",
    "SettingsError",
    "SourceLimits",
    "SourceSettings",
    "StoreSettings",
    "load",
    "of_adapter",
    "origins",
]
