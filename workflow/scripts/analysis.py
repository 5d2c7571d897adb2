"""The work of an analysis, which its rule's name finds (src/rewind/analyses)."""

from rewind.analyses import add_analyses, find_function
from rewind.workflow.job import start_job
from rewind.workflow.stages import strip_rule_prefix

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        add_analyses(job.params.get("analyses") or ())
        find_function(strip_rule_prefix(str(job.params.get("act") or job.rule)))(job)
