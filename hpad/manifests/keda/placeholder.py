"""What stands in settings for a value that objects of KEDA do not tell; `hpad check` takes none of it."""

from typing import Final

VALUE: Final = "REPLACE-ME"
