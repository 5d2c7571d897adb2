"""How long a test waits for something that may never happen: longer on a slow or busy machine."""

from __future__ import annotations

import subprocess
import sys
import time

_IDLE = 0.02  # seconds in which a Python that imports nothing starts and ends on an idle machine
_VALID = 10.0  # seconds for which a measurement holds
_measured = (float("-inf"), 1.0)  # when, and how many times slower than an idle machine


def patience(seconds: float) -> float:
    """Seconds to wait here and now for what takes at most ``seconds`` on an idle machine.

    A test that only waits for its own child process needs no limit: pytest shows where one hangs
    (``faulthandler_timeout``).
    """
    global _measured
    began = time.monotonic()
    if began - _measured[0] > _VALID:
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
        end = time.monotonic()
        _measured = (end, max(1.0, 2 * (end - began) / _IDLE))  # twice: it may become busier
    return seconds * _measured[1]
