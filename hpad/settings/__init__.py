"""The daemon's settings: a YAML file, then `HPAD_*` variables, then flags; the later one wins.

Each field has one parser for all three origins, so "15s" means the same everywhere. An error names the place (file,
variable or flag), the field, the value, and what would be right. Values of adapters' own fields may be secrets, and are
never shown.
"""

# "import X as X" makes a name part of this package (PEP 484).
from hpad.settings.fields import ELECTION as ELECTION
from hpad.settings.fields import JOINED as JOINED
from hpad.settings.fields import PARSERS as PARSERS
from hpad.settings.fields import REMOVED as REMOVED
from hpad.settings.fields import RENAMED as RENAMED
from hpad.settings.fields import SERVING as SERVING
from hpad.settings.fields import TUNABLES as TUNABLES
from hpad.settings.fields import of_adapter as of_adapter
from hpad.settings.loader import load as load
from hpad.settings.loader import origins as origins
from hpad.settings.model import BUILT_IN_SOURCES as BUILT_IN_SOURCES
from hpad.settings.model import LOG_FORMATS as LOG_FORMATS
from hpad.settings.model import LOG_LEVELS as LOG_LEVELS
from hpad.settings.model import STORES as STORES
from hpad.settings.model import Match as Match
from hpad.settings.model import Route as Route
from hpad.settings.model import Settings as Settings
from hpad.settings.model import SettingsError as SettingsError
from hpad.settings.model import SourceLimits as SourceLimits
from hpad.settings.model import SourceSettings as SourceSettings
from hpad.settings.model import StoreSettings as StoreSettings
