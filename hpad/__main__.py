"""`python -m hpad` is the same as `hpad`."""

import sys

from hpad.cli import main

sys.exit(main())
