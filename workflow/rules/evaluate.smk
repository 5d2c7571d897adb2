"""Evaluation: one similarity matrix per run, ranks and metrics in every setting.

Requires: a run's model and the test split.
Produces: similarity/<method>/seed<k>.npz, ranks/<method>/seed<k>.{parquet,json}, metrics.csv; trec/ where asked for.
"""


rule similarity:
    """Score every test caption against every test clip."""
    input:
        unpack(lambda w: model_inputs(w, "train", "test")),
    output:
        "results/{study}/similarity/{method}/seed{seed}.npz",
    log:
        "results/{study}/logs/similarity/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/similarity/{method}.seed{seed}.tsv"
    threads: lambda w: study(w).resources.threads
    resources:
        gpu=lambda w: sharing_gpus(w.study, w.method),
        runtime=lambda w: encoding_minutes(w.study, w.method),
        require_gpu=lambda w: int(study(w).resources.require_gpu),
        workers=lambda w: study(w).frames.workers,
        keep_in_memory=lambda w: int(study(w).frames.keep_in_memory),
        mem_mb=scoring_mb,
    params:
        spec=lambda w: evaluation_spec(w.study, w.method, w.seed),
        dataset=lambda w: study(w).dataset,
        code=lambda w: model_code(w, "similarity", w.method),
    script:
        "../scripts/job.py"


rule ranks:
    """Ranks with honest ties for every query of one run, and its metrics."""
    input:
        item_table=item_table,
        captions=lambda w: captions_of(w.study, "test")["test"],
        similarity=rules.similarity.output[0],
    output:
        ranks="results/{study}/ranks/{method}/seed{seed}.parquet",
        said="results/{study}/ranks/{method}/seed{seed}.json",
    log:
        "results/{study}/logs/ranks/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/ranks/{method}.seed{seed}.tsv"
    group:
        "report_{study}"
    resources:
        runtime=SHORT,
        mem_mb=matrix_mb,
    params:
        dataset=lambda w: study(w).dataset,
        settings=lambda w: study(w).evaluation.settings,
        directions=lambda w: study(w).evaluation.directions,
        item_to_text=lambda w: study(w).evaluation.item_to_text,
        code=lambda w: code(w, "ranks"),
    script:
        "../scripts/job.py"


rule metrics:
    """One table of the metrics of all runs."""
    input:
        said=lambda w: per_run(w.study, rules.ranks.output.said),
    output:
        table=report("results/{study}/metrics.csv", category="Results", caption="../report/metrics.rst"),
    log:
        "results/{study}/logs/metrics.log",
    benchmark:
        "results/{study}/benchmarks/metrics.tsv"
    group:
        "report_{study}"
    resources:
        runtime=SHORT,
        mem_mb=least_mb,
    params:
        runs=lambda w: study(w).runs(),
        settings=lambda w: study(w).evaluation.settings,
        code=lambda w: code(w, "metrics"),
    script:
        "../scripts/job.py"


rule trec:
    """Files for other evaluation tools, up to gigabytes, so only where asked: `snakemake results/demo/trec`."""
    input:
        item_table=item_table,
        captions=lambda w: captions_of(w.study, "test")["test"],
        similarity=lambda w: per_run(w.study, rules.similarity.output[0]),
    output:
        files=directory("results/{study}/trec"),
    log:
        "results/{study}/logs/trec.log",
    benchmark:
        "results/{study}/benchmarks/trec.tsv"
    resources:
        mem_mb=matrix_mb,
    params:
        runs=lambda w: study(w).runs(),
        dataset=lambda w: study(w).dataset,
        settings=lambda w: study(w).evaluation.settings,
        directions=lambda w: study(w).evaluation.directions,
        code=lambda w: code(w, "trec"),
    script:
        "../scripts/job.py"
