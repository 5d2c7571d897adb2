"""Cosine gap, where a study says `evaluation.cosine_gap: true`.

Requires: a run's model, the validation and the test split.
Produces: cosines/<method>/seed<k>.npz, cosine_gap.csv, cosine_counts.csv, statistics/cosine_gap{,_pairs}.csv and
figures/cosine_gap.{png,pdf}.
"""


rule cosines:
    """Cosines of captions and clips of validation and test, each by itself and after cross-attention of its pair."""
    input:
        unpack(lambda w: model_inputs(w, "train", "valid", "test")),
    output:
        "results/{study}/cosines/{method}/seed{seed}.npz",
    log:
        "results/{study}/logs/cosines/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/cosines/{method}.seed{seed}.tsv"
    threads: lambda w: study(w).resources.threads
    resources:
        gpu=lambda w: encoding_gpus(w.study, w.method),
        runtime=lambda w: encoding_minutes(w.study, w.method),
        require_gpu=lambda w: int(study(w).resources.require_gpu),
        workers=lambda w: study(w).frames.workers,
        keep_in_memory=lambda w: int(study(w).frames.keep_in_memory),
        mem_mb=scoring_mb,
    params:
        spec=lambda w: evaluation_spec(w.study, w.method, w.seed),
        dataset=lambda w: study(w).dataset,
        code=lambda w: model_code(w, "cosines", w.method),
    script:
        "../scripts/job.py"


rule cosine_gap:
    """How much closer captions are to their own clips than to others: every run, intervals, tests, counts."""
    input:
        item_table=item_table,
        captions=lambda w: list(captions_of(w.study, "valid", "test").values()),
        cosines=lambda w: per_run(w.study, rules.cosines.output[0]),
    output:
        table=report("results/{study}/cosine_gap.csv", category="Results", caption="../report/cosine_gap.rst"),
        intervals="results/{study}/statistics/cosine_gap.csv",
        pairs="results/{study}/statistics/cosine_gap_pairs.csv",
        counts="results/{study}/cosine_counts.csv",
    log:
        "results/{study}/logs/cosine_gap.log",
    benchmark:
        "results/{study}/benchmarks/cosine_gap.tsv"
    group:
        "report_{study}"
    resources:
        runtime=SHORT,
        mem_mb=ranks_mb,
    params:
        runs=lambda w: study(w).runs(),
        dataset=lambda w: study(w).dataset,
        settings=lambda w: study(w).statistics.fingerprint(),
        pairs=lambda w: study(w).pairs(),
        random=lambda w: comparing.random_factors(study(w)),
        code=lambda w: code(w, "cosine_gap"),
    script:
        "../scripts/job.py"


rule cosine_gap_figure:
    """Densities of cosines of pairs and of non-pairs, a row per method."""
    input:
        unpack(lambda w: gap_inputs(w.study)),
    output:
        report(pictures(["cosine_gap"]), category="Figures", caption="../report/cosine_gap_figure.rst"),
        drawings(["cosine_gap"]),
    log:
        "results/{study}/logs/cosine_gap_figure.log",
    benchmark:
        "results/{study}/benchmarks/cosine_gap_figure.tsv"
    group:
        "report_{study}"
    resources:
        runtime=SHORT,
        mem_mb=least_mb,
    params:
        study=lambda w: study(w).fingerprint(),
        code=lambda w: code(w, "cosine_gap_figure"),
    script:
        "../scripts/job.py"
