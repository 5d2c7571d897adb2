"""Zero-shot classification of labelled images, where a study says `evaluation.zero_shot`.

Requires: a run's model and the images' file.
Produces: zero_shot/<method>/seed<k>.npz, zero_shot.csv, statistics/zero_shot.csv, statistics/zero_shot_pairs.csv.
"""


rule zero_shot:
    """Classify labelled images by prompts with one run's model."""
    input:
        unpack(lambda w: captions_of(w.study, "train")),
        item_table=item_table,
        best=rules.sweep.output.best,
        model=rules.train.output.model,
        images=lambda w: zero_shot_input(w.study),
    output:
        "results/{study}/zero_shot/{method}/seed{seed}.npz",
    log:
        "results/{study}/logs/zero_shot/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/zero_shot/{method}.seed{seed}.tsv"
    threads: lambda w: study(w).resources.threads
    resources:
        gpu=lambda w: sharing_gpus(w.study, w.method),
        runtime=lambda w: encoding_minutes(w.study, w.method),
        require_gpu=lambda w: int(study(w).resources.require_gpu),
        workers=lambda w: study(w).frames.workers,
        mem_mb=study_mb,
    params:
        spec=lambda w: zero_shot_spec(w.study, w.method),
        dataset=lambda w: study(w).dataset,
        code=lambda w: model_code(w, "zero_shot", w.method, files=zero_shot_input(w.study)),
    script:
        "../scripts/job.py"


rule zero_shot_table:
    """A row per run, an interval per method over training seeds and images, a test per declared pair."""
    input:
        lambda w: [f"results/{w.study}/zero_shot/{m}/seed{s}.npz" for m, s in zero_shot_methods(w.study)],
    output:
        runs="results/{study}/zero_shot.csv",
        intervals="results/{study}/statistics/zero_shot.csv",
        pairs="results/{study}/statistics/zero_shot_pairs.csv",
    log:
        "results/{study}/logs/zero_shot.log",
    benchmark:
        "results/{study}/benchmarks/zero_shot.tsv"
    group:
        "report_{study}"
    resources:
        runtime=SHORT,
        mem_mb=least_mb,
    params:
        runs=lambda w: zero_shot_methods(w.study),
        settings=lambda w: study(w).evaluation.zero_shot.fingerprint(),
        confidence=lambda w: study(w).statistics.confidence,
        random=lambda w: comparing.random_factors(study(w)),
        pairs=lambda w: study(w).pairs(),
        code=lambda w: code(w, "zero_shot_table"),
    script:
        "../scripts/job.py"
