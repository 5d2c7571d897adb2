"""What the user typed, for every job. Never a parameter: another way to call makes nothing stale."""

import sys

from rewind.command import hand_down, restore, shell_proof

hand_down(sys.argv, first=workflow.is_main_process)

# Overrides with quotes or `$` would not pass the shells between this process and its jobs.
if workflow.is_main_process and isinstance(workflow.config_settings.config_args, list):
    workflow.config_settings.config_args = shell_proof(workflow.config_settings.config_args, config)
else:
    restore(config)


# Schedulers that start jobs with an environment of their own are told to pass it on.
envvars:
    "REWIND_COMMAND",
