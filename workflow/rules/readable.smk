"""A fault of ``config/config.yaml`` is reported with its line before Snakemake reads the file, which would trace it."""

from pathlib import Path

from snakemake.exceptions import WorkflowError

from rewind.config.load import read_yaml
from rewind.errors import RewindError
from rewind.workflow.config import MAIN_CONFIG

# Where this workflow is a module of another one, that one has read the configuration.
if Path(MAIN_CONFIG).exists() and not workflow.modifier.skip_configfile:
    try:
        read_yaml(Path(MAIN_CONFIG))
    except RewindError as error:
        raise WorkflowError(str(error)) from None
