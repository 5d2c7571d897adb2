"""How a job finds what the user typed."""

from __future__ import annotations

from checkout import ROOT

# What the files between set, and what is looked at before the first job.
STARTUP = f"""
from rewind.errors import RewindError
from rewind.workflow.preflight.checks import Preflight, run_checks

STUDIES, DATASETS, LOST = {{}}, {{}}, []
include: "{ROOT}/workflow/rules/startup.smk"
"""
