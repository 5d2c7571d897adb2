"""What the user typed, for every run.json. Never a parameter: another way to call makes nothing stale."""

import sys

from rewind.command import hand_down

hand_down(sys.argv, first=workflow.is_main_process)


# Schedulers that start jobs with an environment of their own are told to pass it on.
envvars:
    "REWIND_COMMAND",
