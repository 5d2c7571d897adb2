"""CI rehearses studies by turns: none is forgotten, and the main job is always among them."""

from __future__ import annotations

import runpy
import subprocess
import sys

from checkout import ROOT

STUDIES = sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml"))


def test_every_study_has_its_turn_within_as_many_steps_of_three_hours_as_there_are_turns():
    turn = runpy.run_path(str(ROOT / ".ci/turn.py"))
    lists = [turn["chosen"](STUDIES, now) for now in range(0, turn["TURNS"] * turn["SECONDS_OF_A_TURN"], 10800)]
    assert sorted({name for names in lists for name in names}) == STUDIES
    assert all("rtime" in names and len(names) < len(STUDIES) for names in lists)


def test_the_command_names_studies_for_this_commit():
    command = [sys.executable, ".ci/turn.py", "demo", "rtime"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "rtime" in done.stdout.split() and set(done.stdout.split()) <= {"demo", "rtime"}
