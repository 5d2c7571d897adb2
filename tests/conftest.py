"""Shared fixtures: one thread, and golden files that may be absent."""

from __future__ import annotations

import importlib
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

# No test is timed: a busy machine is no fault.
hypothesis.settings.register_profile("rewind", deadline=None)
hypothesis.settings.load_profile("rewind")

# It asserts for the tests that name it as a plugin.
pytest.register_assert_rewrite("init_room")

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"


BROWSERS = ("chromium", "chromium-browser", "google-chrome")
UNSEEN = "browser tests did not run: "


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A chromium without a window. Tests that need it are skipped where there is none, and the summary says so."""
    try:
        sync = importlib.import_module("playwright.sync_api")
    except ImportError:
        pytest.skip(f"{UNSEEN}the package playwright is not installed (it is in the extra dev)")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"{UNSEEN}none of {', '.join(BROWSERS)} is on PATH")
    with sync.sync_playwright() as started:
        try:
            # No sandbox: containers that run tests forbid it, and the pages are our own.
            running = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        except sync.Error as error:
            pytest.skip(f"{UNSEEN}{program} does not start here: {str(error).strip().splitlines()[0]}")
        yield running
        running.close()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one line that the browser tests were skipped, and why; the reports of other processes are here too."""
    skipped = terminalreporter.stats.get("skipped", [])
    said = [report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)]
    for reason, count in Counter(text.partition(UNSEEN)[2] for text in said if UNSEEN in text).items():
        terminalreporter.write_line(f"{count} {UNSEEN}{reason}", yellow=True)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data, which is not part of the repository."""
    if not SHARED.exists():
        pytest.skip(f"reference data not present at {SHARED}")
    return SHARED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with whole workflows first: one that begins last would keep a single process busy at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
