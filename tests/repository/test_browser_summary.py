"""The browser tests are never skipped in silence: the summary says so, also where other processes ran them."""

import os
import subprocess
import sys

import pytest

from checkout import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_summary_says_that_no_browser_ran(tmp_path, processes):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--numprocesses", processes]
    command += ["tests/report/test_page_compare_browser.py", "-k", "anchors or keyboard"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PATH": str(tmp_path)},  # where no browser is
        capture_output=True,
        text=True,
    )
    said = [line for line in done.stdout.splitlines() if "browser tests did not run" in line]
    assert done.returncode == 0 and len(said) == 1, done.stdout + done.stderr
    assert said[0].startswith("2 browser tests did not run: ")
    assert "is on PATH" in said[0] or "playwright is not installed" in said[0]
