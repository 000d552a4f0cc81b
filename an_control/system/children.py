"""Child processes that do not outlive the process that starts them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence


def bound(command: Sequence[str]) -> list[str]:
    """The command, which gets SIGTERM when the process that starts it ends, even if by SIGKILL.

    By setpriv of util-linux; where that is missing the command as it is.
    """
    return [*(["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []), *command]
