"""What numbers on the command line may be."""

from __future__ import annotations

import argparse
import math


def finite(text: str) -> float:
    """A finite number, as the ``type`` of an option: NaN and infinity, which ``float`` takes, are refused.

    Raises:
        argparse.ArgumentTypeError: naming what was given.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value
