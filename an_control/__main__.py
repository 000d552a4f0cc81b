"""``python -m an_control``: the command `an-control`."""

import sys

from an_control.entry_points import an_control

sys.exit(an_control())
