"""``python -m rewind``: the same as the command ``rewind``."""

import sys

from rewind.cli import main

sys.exit(main())
