"""What happens before and around all jobs; the one file that asks Snakemake for what it has no documented interface to.

Sets HOME, the workflow's own folder; TYPED, what the command line gave, as opposed to config/config.yaml; and
FIRST_PROCESS, whether the user started this process, and not Snakemake for one of its jobs.
"""

import sys
from collections import defaultdict
from pathlib import Path

import snakemake.workflow
from snakemake.dag import DAG
from snakemake.exceptions import WorkflowError
from snakemake.io import is_flagged

from rewind.gpu import jobs_per_gpu
from rewind.provenance import decode_config, encode_config, record_command, record_typed_config
from rewind.workflow.checksums import job_origin
from rewind.working_folder import record_modules_folder
from rewind.workflow.temporary_files import remove_old_temporary_files

# Where this workflow is a module of another one, missing files of keys are its own.
HOME = Path(str(workflow.current_basedir)).parents[1]
TYPED = workflow.config_settings.overwrite_config
FIRST_PROCESS = workflow.is_main_process

# What the user typed, for every job. Never a parameter: another way to call makes nothing stale.
record_command(sys.argv, first=FIRST_PROCESS)
record_modules_folder(workflow.main_snakefile)
record_typed_config(TYPED)

# Overrides with quotes or `$` would not pass the shells between this process and its jobs.
if FIRST_PROCESS and isinstance(workflow.config_settings.config_args, list):
    workflow.config_settings.config_args = encode_config(workflow.config_settings.config_args, config)
else:
    decode_config(config)

if FIRST_PROCESS:
    remove_old_temporary_files(Path(".snakemake/rewind"))
else:
    # The process that a submission starts adds up its group's jobs again, see onstart.
    workflow.global_resources["nodes"] = 1


class FilteredDAG(DAG):
    """``--until`` and ``--omit-from`` beyond a checkpoint.

    After a checkpoint Snakemake 9 drops the jobs behind the last ones asked for, and only then looks for missing files:
    among those that the dropped jobs wanted, so none is missing. The run ends there with exit code 0, and the next one
    says that nothing is to be done. So the files of the last jobs are asked for as if they had been named.

    And jobs behind ``ancient`` files: where a job has to run, Snakemake looks at no job behind it, since all of them
    will have to; then it leaves out those that read only its ``ancient`` files, although they may be stale themselves.
    """

    watched = None  # while stale jobs are looked for: `depending` without what is only behind ancient files

    async def update_needrun(self, *arguments, **keys):
        self.watched = defaultdict(dict)
        for job, behind in self.depending.items():
            self.watched[job] = {
                other: files for other, files in behind.items() if not all(f.is_ancient for f in files)
            }
        await super().update_needrun(*arguments, **keys)
        self.watched = None

    def bfs(self, direction, *jobs, **keys):
        if self.watched is not None and direction is self.depending:
            direction = self.watched
        return super().bfs(direction, *jobs, **keys)

    def delete_omitfrom_jobs(self):  # called whenever the jobs are filtered, last
        for file in self.omitfiles:
            if not any(made.is_producer(file) for made in self.rules):
                raise WorkflowError(f"--omit-from: {file} is neither a rule nor a file that a rule makes.")
        super().delete_omitfrom_jobs()
        if self.untilrules or self.untilfiles or self.omitrules or self.omitfiles:
            files = (file for job in self.targetjobs for file in job.output if not is_flagged(file, "temp"))
            self.targetfiles = self.targetfiles | set(files)

    async def postprocess(self, *arguments, **keys):
        await super().postprocess(*arguments, **keys)
        if lacking := self.untilrules - {job.rule.name for job in self.jobs}:
            raise WorkflowError(
                f"--until: none of these studies has a job of {', '.join(sorted(lacking))}: {', '.join(STUDIES)}. "
                "`snakemake -n` lists the rules of their jobs."
            )


snakemake.workflow.DAG = FilteredDAG


# Schedulers that start jobs with an environment of their own are told to pass it on.
envvars:
    "REWIND_COMMAND",


# A limit for each submission, not for all of them at once.
resource_scopes:
    nodes="local",


onstart:
    # Only now is it known that jobs run on this machine, and not on nodes that may have more GPUs.
    settings = (
        workflow.executor_settings if getattr(workflow.executor_plugin, "name", "") == "slurm" else None
    )
    planned = []
    for job in workflow.dag.needrun_jobs():
        outputs = list(map(str, job.output))
        gone = set(LOST).intersection(outputs)
        origin = job_origin(dict(job.params.items()), map(str, job.input)) if gone else ""
        planned.append((job.rule.name, outputs, origin))
    try:
        run_checks(
            "start",
            Preflight(
                STUDIES, DATASETS, lost=LOST, planned=planned, local=workflow.local_exec, slurm=settings
            ),
        )
    except RewindError as error:
        raise WorkflowError(str(error)) from None
    shares = [study.resources.shared_gpu_mb for study in STUDIES.values() if study.resources.gpus]
    if workflow.local_exec and shares and None not in shares:
        # `--resources gpu=4` stays a number of devices: the scheduler counts as many jobs as these take.
        jobs_of_each = jobs_per_gpu(max(shares))
        for counted in (workflow.scheduler.global_resources, workflow.scheduler.resources):
            if "gpu" in counted:
                counted["gpu"] *= jobs_of_each
    if settings:
        # Jobs of a group run one after another: side by side they would ask for a node each, and for all their memory.
        workflow.global_resources["nodes"] = 1
