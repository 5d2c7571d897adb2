"""What the user typed, for every job. Never a parameter: another way to call makes nothing stale."""

import sys

from rewind.provenance import decode_config, encode_config, record_command

record_command(sys.argv, first=workflow.is_main_process)

# Overrides with quotes or `$` would not pass the shells between this process and its jobs.
if workflow.is_main_process and isinstance(workflow.config_settings.config_args, list):
    workflow.config_settings.config_args = encode_config(workflow.config_settings.config_args, config)
else:
    decode_config(config)


# Schedulers that start jobs with an environment of their own are told to pass it on.
envvars:
    "REWIND_COMMAND",
