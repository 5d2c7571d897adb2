"""Rewind: from raw clips to tables. `snakemake --cores all --resources gpu=4` brings every study up to date."""

from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/readable.smk"


configfile: "config/config.yaml"


include: "workflow/rules/command.smk"
include: "workflow/rules/common.smk"
include: "workflow/rules/identity.smk"
include: "workflow/rules/resources.smk"
include: "workflow/rules/inputs.smk"
include: "workflow/rules/extras.smk"
include: "workflow/rules/videos.smk"
include: "workflow/rules/embeddings.smk"
include: "workflow/rules/captions.smk"
include: "workflow/rules/encoders.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/frames.smk"
include: "workflow/rules/sweep.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/zero_shot.smk"
include: "workflow/rules/cosine_gap.smk"
include: "workflow/rules/statistics.smk"
include: "workflow/rules/verdict.smk"
include: "workflow/rules/translator.smk"
include: "workflow/rules/report.smk"


# Last, so that they can use what stands above: rules of the user's own.
for path in CUSTOM_RULES:

    include: path


mirror_gpus()
fit_memory()


report: "workflow/report/workflow.rst"


localrules:
    all,
    sweep,


rule all:
    """Tables and figures of every study in config/config.yaml."""
    default_target: True
    input:
        [targets(name) for name in STUDIES],


rule prepared:
    """Videos and captions only, of every data set in use: `snakemake prepared`."""
    input:
        expand("results/data/{dataset}/items.csv", dataset=DATASETS),
