"""Configuration of the selected studies, and the plan that answers for their rules.

Rules name their files themselves. What a study decides is answered by the functions of src/rewind/workflow/plan:
``job(training.train_inputs)`` is a function of a job's wildcards, which calls ``train_inputs`` with the study's plan.
"""

import atexit
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from rewind.analyses import analysis_rules
from rewind.errors import RewindError
from rewind.io.files import read_json
from rewind.system_errors import user_message
from rewind.video.shards import how_to_restore_shards, missing_shards
from rewind.workflow.staleness.accepted import AcceptedEditStore
from rewind.workflow.checksums import how_to_restore, is_made_otherwise, lost_outputs, restore_times
from rewind.workflow.staleness.code_hash import StageCode
from rewind.workflow.config import ONLY_KEYS, custom_rules, load_checked_config, load_config
from rewind.workflow.plan import compute, extras, items, reporting, scoring, training
from rewind.workflow.plan.dataset import DatasetPlan
from rewind.workflow.plan.files import Unwatched, UserFile
from rewind.workflow.plan.rules import CodeHashes, WorkflowPlan
from rewind.workflow.plan.study import StudyPlan
from rewind.workflow.preflight.checks import CACHE_FILE, Preflight, run_checks
from rewind.workflow.staleness.reasons import recorded_time
from rewind.workflow.staleness.user_inputs import UserInputs

# Here and not in input functions, whose exceptions Snakemake swallows where the file that they are for exists. Jobs
# that read the workflow again on another machine need only the keys, and so does `rewind why`.
try:
    if FIRST_PROCESS and not os.environ.get(ONLY_KEYS):
        STUDIES, DATASETS = load_checked_config(config, CACHE_FILE, sys.argv[1:], HOME, TYPED)
    else:
        STUDIES, DATASETS = load_config(config, HOME, TYPED)
    CUSTOM_RULES = custom_rules(config)
    CODE = StageCode(scripts=HOME / "workflow/scripts", memory=Path(".snakemake/rewind/modules.json"))
    SEEN = UserInputs(Path(".snakemake/rewind/brought.csv"), writes=FIRST_PROCESS)
    ACCEPTED = AcceptedEditStore()
    ACCEPTED.check(STUDIES, DATASETS)
except Exception as error:
    if sentence := user_message(error):
        raise WorkflowError(sentence) from None
    raise
FOLDERS = [Path(f"results/{name}") for name in (*STUDIES, *(f"data/{name}" for name in DATASETS))]
LOST = [path for name in DATASETS for path in missing_shards(Path(f"results/data/{name}/videos"))]
if FIRST_PROCESS:
    atexit.register(CODE.reader.memory.save)
    atexit.register(SEEN.keep)
    SEEN.restore_times()
    for folder in FOLDERS:
        restore_times(folder, recorded_time)
        if gone := lost_outputs(folder):
            print(f"note: {how_to_restore(gone)}", file=sys.stderr)
    if gone := [path for path in LOST if not is_made_otherwise(path)]:
        print(f"note: {how_to_restore_shards(gone)}", file=sys.stderr)


def chosen_frames(name):
    """The sweep's choice, once it is up to date: until then Snakemake puts off what asks for it."""
    return read_json(checkpoints.sweep.get(study=name).output.best)["max_frames"]


def chosen_keys(name, method, seed):
    """The keys that a method's trials chose, once they are up to date."""
    return read_json(checkpoints.tune.get(study=name, method=method, seed=seed).output.choice)["keys"]


def as_input(files):
    """Files of the plan with Snakemake's flags."""
    if isinstance(files, dict):
        return {name: as_input(value) for name, value in files.items()}
    if isinstance(files, list):
        return [as_input(value) for value in files]
    return (
        ancient(str(files))
        if isinstance(files, Unwatched)
        else (local(str(files)) if isinstance(files, UserFile) else files)
    )


plan = WorkflowPlan(
    STUDIES, DATASETS, chosen_frames, chosen_keys, as_input, CodeHashes(CODE, SEEN, ACCEPTED), WorkflowError
)
job = plan.job


# Of all studies, where a rule that inherits from another one would inherit its constraint.
STUDY = "|".join(STUDIES)


wildcard_constraints:
    study=STUDY,
    dataset="|".join(DATASETS),
    seed=r"\d+",
    frames=r"\d+",
    trial=r"[0-9a-f]{8}",
    shard=r"\d+",
    # Of a pre-training, and of what rests on it: nothing where there is one for all seeds, or none.
    part=r"(?:/seed\d+)?",


def study(wildcards):
    """The study of a job, for rules of the user's own (``custom_rules``)."""
    return STUDIES[wildcards.study]


def per_run(name, pattern):
    """A path for every (method, seed) of a study, for rules of the user's own."""
    return [pattern.format(study=name, method=method, seed=seed) for method, seed in STUDIES[name].runs()]
