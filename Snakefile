"""Rewind: from raw clips to tables. `snakemake --cores all --resources gpu=4` brings every study up to date."""

from snakemake.utils import min_version

min_version("9.20")


include: "workflow/rules/readable.smk"


configfile: "config/config.yaml"


include: "workflow/rules/startup.smk"
include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/features.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/statistics.smk"
include: "workflow/rules/analyses.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/extras.smk"


# Last, so that they can use what stands above: rules of the user's own.
for path in CUSTOM_RULES:

    include: path


report: "workflow/report/workflow.rst"


localrules:
    all,
    board,
    sweep,
    tune,


rule all:
    """Tables and figures of every study in config/config.yaml."""
    default_target: True
    input:
        plan.of_all_studies(reporting.targets),


rule prepared:
    """Videos and captions only, of every data set in use: `snakemake prepared`."""
    input:
        expand("results/data/{dataset}/items.csv", dataset=DATASETS),


rule trained:
    """All runs, and nothing that is computed from them: `snakemake trained`."""
    input:
        plan.of_all_studies(StudyPlan.run_records),


rule scored:
    """All runs and their scores of the test split: `snakemake scored`."""
    input:
        plan.of_all_studies(StudyPlan.similarity_files),


rule ranked:
    """All runs, their scores and ranks: `snakemake ranked`."""
    input:
        plan.of_all_studies(StudyPlan.rank_files),


rule board:
    """One page and one table over all studies in config/config.yaml, in the folder board: `snakemake board`."""
    input:
        plan.of_all_studies(reporting.targets),
    log:
        "results/board.log",
    params:
        studies=list(STUDIES),
    run:
        from rewind.cli.board import make_board

        text = make_board(params.studies, Path("board"))
        Path(log[0]).write_text(f"{text}\n")
        print(text)
