"""The seeded faults of ``benchmarks/seeded_faults.py`` fit the library as it is; whether tests find them, that says."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from checkout import ROOT
from seeded_faults import FAULTS, Fault, file_of_tests, plant

PACKAGES_WITHOUT_NUMBERS = {"cli"}  # commands: what they print is computed elsewhere


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted_and_names_tests(fault: Fault, tmp_path):
    original = ROOT / "src/rewind" / fault.path
    copy = tmp_path / "src/rewind" / fault.path
    copy.parent.mkdir(parents=True)
    copy.write_bytes(original.read_bytes())
    assert plant(fault, tmp_path) == original.read_text(encoding="utf-8")
    assert ast.dump(ast.parse(copy.read_text())) != ast.dump(ast.parse(original.read_text()))
    assert fault.tests and all(file_of_tests(name) for name in fault.tests.split())


def test_every_package_has_a_fault():
    packages = {path.parent.name for path in (ROOT / "src/rewind").glob("*/__init__.py")} - PACKAGES_WITHOUT_NUMBERS
    assert packages <= {fault.path.partition("/")[0] for fault in FAULTS}
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40


@pytest.mark.slow
def test_a_planted_fault_is_found_and_the_library_is_not_touched():
    path = ROOT / "src/rewind/evaluation/twins.py"
    before = path.read_bytes()
    command = [sys.executable, "benchmarks/seeded_faults.py", "--only", "binary-swapped", "--no-fallback"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_ranking.py::" in done.stdout and "1 of 1 found" in done.stdout
    assert path.read_bytes() == before
