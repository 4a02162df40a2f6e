"""The daemon's settings: a YAML file, then `HPAD_*` variables, then flags; the later one wins.

model.py is the table of all settings. Each has one parser for all three origins, so "15s" means the same everywhere. An
error names the place (file, variable or flag), the field, the value, and what would be right. Values of adapters' own
fields may be secrets, and are never shown.
"""

# "import X as X" makes a name part of this package (PEP 484).
from hpad.settings.hpas import HpaEntry as HpaEntry
from hpad.settings.loader import REMOVED as REMOVED
from hpad.settings.loader import load as load
from hpad.settings.loader import origins as origins
from hpad.settings.model import BUILT_IN_SOURCES as BUILT_IN_SOURCES
from hpad.settings.model import TABLE as TABLE
from hpad.settings.model import Settings as Settings
from hpad.settings.parsers import SettingsError as SettingsError
from hpad.settings.sources import Match as Match
from hpad.settings.sources import OpenedQueries as OpenedQueries
from hpad.settings.sources import Route as Route
from hpad.settings.sources import SourceLimits as SourceLimits
from hpad.settings.sources import SourceSettings as SourceSettings
from hpad.settings.sources import StoreSettings as StoreSettings
from hpad.settings.sources import of_adapter as of_adapter
from hpad.settings.sources import opened_queries as opened_queries
