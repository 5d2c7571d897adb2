"""A fault of ``config/config.yaml`` is told with its line before Snakemake reads the file, which would trace it."""

from pathlib import Path

from snakemake.exceptions import WorkflowError

from rewind.errors import RewindError
from rewind.jobs.config import MAIN
from rewind.study.yaml_file import read_yaml

# Where this workflow is a module of another one, that one has read the configuration.
if Path(MAIN).exists() and not workflow.modifier.skip_configfile:
    try:
        read_yaml(Path(MAIN))
    except RewindError as error:
        raise WorkflowError(str(error)) from None
