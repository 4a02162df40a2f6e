"""The daemon's settings: a YAML file, then `HPAD_*` variables, then flags; the later one wins.

Each field has one parser for all three origins, so "15s" means the same everywhere. An error names the place (file,
variable or flag), the field, the value, and what would be right. Values of adapters' own fields may be secrets, and are
never shown.
"""

from hpad.settings.fields import (
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
from hpad.settings.loader import load, origins
from hpad.settings.model import (
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
