"""On request: a submission to the challenge, and what a query costs.

Requires: finished runs; for a submission the npz that the data set's `source.test` names.
Produces: submission/<method>.seed<k>.csv; efficiency/{efficiency.csv,table_efficiency.*}.
"""


rule submission:
    """Vectors of a test npz: `snakemake results/translator/submission/geometry_adapter.seed0.csv`."""
    input:
        unpack(lambda w: model_inputs(w, "train")),
        npz=lambda w: submission_captions(w.study),
    output:
        "results/{study}/submission/{method}.seed{seed}.csv",
    log:
        "results/{study}/logs/submission/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/submission/{method}.seed{seed}.tsv"
    threads: lambda w: study(w).resources.threads
    resources:
        gpu=lambda w: encoding_gpus(w.study, w.method),
        require_gpu=lambda w: int(study(w).resources.require_gpu),
        runtime=lambda w: encoding_minutes(w.study, w.method),
        mem_mb=study_mb,
    params:
        spec=lambda w: evaluation_spec(w.study, w.method, w.seed),
        dataset=lambda w: study(w).dataset,
        code=lambda w: model_code(w, "submission", w.method),
    script:
        "../scripts/job.py"


rule efficiency:
    """Sizes and times of every method's first run, measured: let nothing else run beside it (`--cores 1`)."""
    input:
        unpack(lambda w: captions_of(w.study, "train", "test")),
        unpack(lambda w: cache_files(w.study, *measured(w.study)[0])),
        item_table=item_table,
        best=rules.sweep.output.best,
        models=lambda w: [
            f"results/{w.study}/runs/{m}/seed{s}/model.safetensors" for m, s in measured(w.study)
        ],
    output:
        files=directory("results/{study}/efficiency"),
    log:
        "results/{study}/logs/efficiency.log",
    benchmark:
        "results/{study}/benchmarks/efficiency.tsv"
    threads: lambda w: study(w).resources.threads
    resources:
        gpu=lambda w: min(1, study(w).resources.gpus),
        workers=lambda w: study(w).frames.workers,
        mem_mb=study_mb,
    params:
        spec=lambda w: evaluation_spec(w.study, measured(w.study)[0][0]),
        methods=lambda w: [
            (m, study(w).methods[m].label or m, evaluation_spec(w.study, m)) for m, _ in measured(w.study)
        ],
        title=lambda w: ", ".join(
            filter(None, [DATASETS[study(w).dataset].title, pretraining.pretraining_condition(study(w))])
        ),
        prefix=lambda w: study(w).tables.prefix,
        dataset=lambda w: study(w).dataset,
        code=lambda w: model_code(w, "efficiency", *(m for m, _ in measured(w.study))),
    script:
        "../scripts/job.py"
