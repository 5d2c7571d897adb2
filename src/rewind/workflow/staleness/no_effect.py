"""Code that no result depends on, with the reason: it is left out of code hashes, or each edit of a message would be an
edit of results.

One list, so that what is left out can be read and doubted as a whole; a test runs the stages and fails where code ran
that is neither hashed nor named here.
"""

from __future__ import annotations

NON_SEMANTIC = frozenset(
    {
        "rewind.errors",  # messages for people, as a terminal may show them
        "rewind.system_errors",  # messages about faults of the machine
        "rewind.io.files:atomic_write",  # where a file is put, not what is in it
        "rewind.progress",  # lines on the console
        "rewind.provenance",  # what ran, where, and what was typed: recorded next to results, never in them
        "rewind.platform",  # names of processors, where a program is installed
        "rewind.gpu",  # which GPU is free
        "rewind.packaged",  # where the workflow is installed
        "rewind.working_folder",  # where Snakemake is run
        "rewind.commands",  # commands in messages
        "rewind.optional_packages",  # how packages are imported
        "rewind.registry",  # where code is that a study names; the rule names that code
        "rewind.config.base",  # how keys are declared and refused
        "rewind.config.load",  # how configuration files are read
        "rewind.config.checks",  # refuses a study, or lets it pass unchanged
        "rewind.config.study:Study.faults",  # likewise
        "rewind.analyses",  # which analyses there are, and where
        "rewind.config.study:RunSpec.needed_splits",  # what a run is refused for, where a split is missing
        "rewind.config.dataset:Dataset.why_no_twins",  # what a study is refused for
        "rewind.loading.splits",  # refuses a run, or lets it pass unchanged
        "rewind.data.formats.negation:has_groups",  # which jobs there are, not what they compute
        "rewind.data.formats.rtime:has_groups",  # likewise
        "rewind.data.formats.shapes:has_groups",  # likewise
        "rewind.data.formats.table:has_groups",  # likewise
        "rewind.video.readers:reader_name",  # which reader decodes: all give the same frames of a prepared clip
        "rewind.video.readers:_count_decodable_frames",  # for files that are not prepared clips, which no stage reads
        "rewind.video.sources:refuse_name_clashes",  # a data set is refused, or goes on as it is
        "rewind.training.tracking",  # curves next to the results
        "rewind.training.checkpoint_store",  # where a training state is stored, not what is in it
        "rewind.training.run:_run_record",  # run.json, around the scores
        "rewind.torch_setup:keep_freed_memory",  # only speed
        # Modules of this package by name: it has also contained code that computes results.
        "rewind.workflow.staleness.no_effect",  # this list
        "rewind.workflow.stages",  # which code counts, and which script and function a rule has
        "rewind.workflow.launch",  # starts processes; what they do together is rewind.distributed
        "rewind.job_values",  # files and parameters of a job as plain values
        "rewind.workflow.job",  # its log, leases and messages
        "rewind.workflow.checksums",  # refuses inputs, or lets a job go on unchanged
        "rewind.workflow.temporary_files",  # removes what killed processes left behind
        "rewind.workflow.staleness.code_hash",  # computes these hashes
        "rewind.workflow.what_ran",  # recorded next to tables, never in them
    }
)
"""Modules, single definitions and methods that compute nothing. What only they call need not be named."""

GUARDS = frozenset(
    {
        "rewind.io.files:reading_user_file",
        "rewind.io.files:require_regular_file",
        "rewind.io.files:require_intact_archive",
        "rewind.io.files:name_file_in_errors",
        "rewind.io.files:reraise_system_error",
        "rewind.training.checkpoint_store:check_training_state",
        "rewind.video.images:refuse_decode_errors",
        # What is wrong with a cell of a user's table, or with a name in it.
        "rewind.io.schema:cell_fault",
        "rewind.io.schema:unknown_name",
        "rewind.io.files:kind_of_file",
        "rewind.io.files:file_kind",
        # A table of clips, or a path in it.
        "rewind.video.shards:clip_within",
        "rewind.video.shards:refuse_outside",
        "rewind.video.shards:refuse_shard",
        "rewind.video.shards:check_csv",
        "rewind.video.shards:check_clip_location",
        # Checksums of clips that a killed job finished, and of the rows of a frame store.
        "rewind.video.prepare:forget_damaged_clip",
        "rewind.video.frame_store:write_row_checksums",
        "rewind.video.frame_store:publish_row_checksums",
        "rewind.video.frame_store:check_row",
        "rewind.video.frame_store:verify_row_checksums",
    }
)
"""They refuse what they are given or let it pass unchanged: no result depends on them, nor on what they guard. Calls of
them and ``with`` blocks of only them are left out of the normal form, so a reader that gets a guard stays the same."""


def is_ignored(name: str) -> bool:
    """Whether no result depends on ``module:name``, or on a module.

    >>> is_ignored("rewind.workflow.job:start_job"), is_ignored("rewind.workflow.job_inputs:run_spec")
    (True, False)
    """
    return name.partition(":")[0] in NON_SEMANTIC or name in NON_SEMANTIC or name in GUARDS
