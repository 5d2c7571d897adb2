"""Shared fixtures: one thread, a browser, and the table of what is compared with other people's code."""

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

# They assert for the tests that use them.
pytest.register_assert_rewrite("brought_files", "init_room", "messages", "packed_clips")

import golden_numbers  # noqa: E402
import messages  # noqa: E402

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# As in jobs (rewind.torch_setup.reproduce_on_cpu): the same bits wherever in memory tensors are.
os.environ.setdefault("MKL_CBWR", "AVX2,STRICT")

# No test is timed: a busy machine is no fault.
hypothesis.settings.register_profile("rewind", deadline=None)
hypothesis.settings.load_profile("rewind")

COLLECTED = pytest.StashKey[list[pytest.Item]]()
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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden-table", type=Path, metavar="CSV", help="write what was compared with tests/golden")
    parser.addoption("--renew-messages", action="store_true", help="write tests/messages.txt anew for the tests run")
    parser.addoption("--golden-unread", action="store_true", help="list the arrays of tests/golden that no test reads")


@pytest.fixture(scope="session", autouse=True)
def compared_messages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Messages are compared with ``tests/messages.txt``, or written down for it."""
    noted = messages.messages
    noted.base, noted.renew = str(tmp_path_factory.getbasetemp()), request.config.option.renew_messages
    noted.wanted = messages.read_snapshot()
    yield
    if noted.renew:
        messages.write_part([messages.name_of(item.nodeid) for item in request.config.stash[COLLECTED]])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say in one line that the browser tests were skipped, and why; the reports of other processes are here too."""
    if config.option.renew_messages:
        messages.merge_parts()
    if config.option.golden_table:
        golden_numbers.write_records(config.option.golden_table)
    if config.option.golden_unread:
        for file, names in golden_numbers.unread().items():
            terminalreporter.write_line(f"{file}: no test reads {', '.join(names)}")
    skipped = terminalreporter.stats.get("skipped", [])
    said = [report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)]
    for reason, count in Counter(text.partition(UNSEEN)[2] for text in said if UNSEEN in text).items():
        terminalreporter.write_line(f"{count} {UNSEEN}{reason}", yellow=True)


# Before those that the command line leaves out are taken away.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with whole workflows first: one that begins last would keep a single process busy at the end."""
    config.stash[COLLECTED] = list(items)
    workflows = {item.path for item in items if item.get_closest_marker("workflow")}
    items.sort(key=lambda item: item.path not in workflows)
