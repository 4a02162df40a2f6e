"""Moments on the wire: RFC 3339 with a zone. Without one a time can't be compared with any other."""

from datetime import datetime
from typing import Annotated

import msgspec

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A field that is a time and is refused where it doesn't say of which zone."""
