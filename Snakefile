"""Rewind: from raw clips to tables. `snakemake --cores all --resources gpu=4` brings every study up to date."""

from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/readable.smk"


configfile: "config/config.yaml"


include: "workflow/rules/startup.smk"
include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/features.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/statistics.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/extras.smk"


# Last, so that they can use what stands above: rules of the user's own.
for path in CUSTOM_RULES:

    include: path


report: "workflow/report/workflow.rst"


localrules:
    all,
    sweep,


rule all:
    """Tables and figures of every study in config/config.yaml."""
    default_target: True
    input:
        plan.targets(),


rule prepared:
    """Videos and captions only, of every data set in use: `snakemake prepared`."""
    input:
        expand("results/data/{dataset}/items.csv", dataset=DATASETS),
