"""What a check is, what checks share, and how a list of checks is run and printed."""

from __future__ import annotations

import contextlib
import gc
import io
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from rewind.errors import RewindError, count_noun
from rewind.torch_setup import synchronise

OK, BELOW_GOAL, FAILED, NOT_RUN = "ok", "below goal", "FAILED", "not run"
STATES = (OK, BELOW_GOAL, FAILED, NOT_RUN)


@dataclass(frozen=True)
class Check:
    """What one check found.

    Attributes:
        figures: what was measured, by name with its unit.
        detail: what is wrong, why it was not run, or how figures were measured.
        below_goal: goals of speed that were missed, one sentence each; they are not failures.
        name, seconds: set by :func:`run_checks`.
        log: for a check that failed, what it printed, and where it raised.

    >>> check = Check(passed=True, figures={"clips/s": 412.0}, below_goal=("31% of the peak; the goal is 40%",))
    >>> check.state
    'below goal'
    """

    passed: bool | None  # None: it was not run
    figures: dict[str, float] = field(default_factory=dict)
    detail: str = ""
    below_goal: tuple[str, ...] = ()
    name: str = ""
    seconds: float = 0.0
    log: str = ""

    @property
    def state(self) -> str:
        """``ok``, ``below goal``, ``FAILED`` or ``not run``."""
        if self.passed is None:
            return NOT_RUN
        if not self.passed:
            return FAILED
        return BELOW_GOAL if self.below_goal else OK


class CannotRun(Exception):
    """Raised by a check that needs what is not there; the text names it."""


@dataclass(frozen=True)
class Sizes:
    """How large the checks of speed and of memory are."""

    matmul: int  # rows and columns of the square matrices whose product is timed
    architecture: str  # of the towers that are timed: a name, or a JSON file
    size: int  # pixels of a frame's side
    frames: int  # of a clip
    words: int  # tokens of a caption
    clips: tuple[int, ...]  # batch sizes to try, largest first
    steps: int  # that are timed
    warm_up: int  # steps before the timed ones
    memory_clips: int  # clips of tiny towers whose step does not fit into memory
    stored_clips: int  # clips of the frame store
    scored: int  # captions, and clips, that each head scores
    scoring_seconds: float  # that a head may take; the rest is extrapolated
    has_goals: bool


@dataclass
class Session:
    """What the checks of one call share."""

    device: torch.device
    folder: Path
    sizes: Sizes
    demo: bool = False  # whether the demo is run
    matmul_tflops: dict[str, float] = field(default_factory=dict)  # of a product by number format, once measured
    broken: str = ""  # name of the check after which the device no longer answered; empty while it does

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"


@dataclass(frozen=True)
class PlannedCheck:
    """A check by its name, and the function that runs it."""

    name: str
    run: Callable[[Session], Check]


# ---- Running them --------------------------------------------------------------------------------------------------


def run_checks(
    planned: Sequence[PlannedCheck],
    session: Session,
    minutes: float,
    show: Callable[[Check], None] = lambda check: None,
) -> list[Check]:
    """Run checks in their order, whatever one of them finds.

    A check that raises has failed. Once ``minutes`` are over, or the device no longer answers (after an illegal memory
    access every call of CUDA fails, which tells nothing about the checks that follow), the others are not run, which
    their entries state. ``show`` is called with each check as it ends.
    """
    began, checks = time.monotonic(), []
    for plan in planned:
        started = time.monotonic()
        if session.broken:
            check = Check(None, detail=f"the device has not answered since “{session.broken}”: start again")
        elif started - began > 60 * minutes:
            check = Check(None, detail=f"the {minutes:g} minutes were over: raise --minutes")
        else:
            check = _run(plan, session)
        check = replace(check, name=plan.name, seconds=time.monotonic() - started)
        checks.append(check)
        show(check)
        if not session.broken and not _free_memory(session.device):
            session.broken = plan.name
    return checks


def _run(plan: PlannedCheck, session: Session) -> Check:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            check = plan.run(session)
        return replace(check, log=printed.getvalue()) if check.state == FAILED else check
    except CannotRun as reason:
        return Check(None, detail=str(reason))
    except Exception as error:  # an error in one check must not hide the others
        kind = "" if isinstance(error, RewindError) else f"{type(error).__name__}: "
        said = f"{kind}{' '.join(str(error).split())[:300]}"
        return Check(False, detail=said, log=printed.getvalue() + traceback.format_exc())


def _free_memory(device: torch.device) -> bool:
    """Keep a check's tensors out of the memory of the next one; whether the device still answers."""
    gc.collect()
    try:
        if device.type == "cuda":
            torch.cuda.empty_cache()
        synchronise(device)
    except Exception:  # CUDA's errors have many types
        return False
    return True


# ---- Printing them -------------------------------------------------------------------------------------------------


def format_check(check: Check, width: int) -> str:
    """A line of the table: state, name in a column of ``width``, seconds, figures, detail.

    >>> format_check(Check(True, {"clips/s": 412.3}, name="training step", seconds=9.2), width=14)
    'ok          training step      9.2 s  clips/s 412'
    """
    figures = ", ".join(f"{name} {format_figure(value)}" for name, value in check.figures.items())
    text = "; ".join(part for part in (figures, *check.below_goal, check.detail) if part)
    return f"{check.state:<12}{check.name:<{width}} {check.seconds:7.1f} s  {text}".rstrip()


def format_figure(value: float) -> str:
    """A figure with three digits, as a whole number from 100 on.

    >>> [format_figure(value) for value in (412.3, 61_440.0, 0.125, 3.2e-7, 0.0)]
    ['412', '61,440', '0.125', '3.2e-07', '0']
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_summary(checks: Sequence[Check]) -> str:
    """How many checks are in each state, and what is not right, as the last lines of the table.

    >>> checks = [Check(True, name="device"), Check(False, detail="loss differs", name="head meanP")]
    >>> print(format_summary(checks))
    2 checks: 1 ok, 1 FAILED
    FAILED      head meanP: loss differs
    """
    counts = {state: sum(check.state == state for check in checks) for state in STATES}
    listed = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    lines = [f"{count_noun(len(checks), 'check')}: {listed}"]
    for check in checks:
        if check.state in (FAILED, BELOW_GOAL):
            said = check.detail if check.state == FAILED else "; ".join(check.below_goal)
            lines.append(f"{check.state:<12}{check.name}: {said}")
    return "\n".join(lines)
