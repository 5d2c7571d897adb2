"""Before real runs: the over-fitting check, and the sweep that fixes max_frames for every method.

Requires: prepared data.
Produces: sanity.json, sweep/max_frames.csv, sweep/best.json.
"""


rule sanity:
    """A tiny subset must be over-fitted before real runs start."""
    input:
        unpack(lambda w: captions_of(w.study, "train", "valid")),
        unpack(lambda w: sanity_inputs(w.study)),
        described=lambda w: described(w.study),
        item_table=item_table,
        weights=lambda w: weights_of(w.study),
    output:
        "results/{study}/sanity.json",
    log:
        "results/{study}/logs/sanity.log",
    benchmark:
        "results/{study}/benchmarks/sanity.tsv"
    threads: lambda w: study(w).resources.threads
    resources:
        gpu=lambda w: study(w).resources.gpus,
        require_gpu=lambda w: int(study(w).resources.require_gpu),
        workers=lambda w: study(w).frames.workers,
        keep_in_memory=lambda w: int(study(w).frames.keep_in_memory),
        state_folder=lambda w: study(w).resources.state_folder or "",
        mem_mb=study_mb,
    params:
        settings=lambda w: study(w).sanity.fingerprint(),
        spec=lambda w: sanity_spec(w.study),
        dataset=lambda w: study(w).dataset,
        max_frames=lambda w: study(w).frames.max_frames,
        state="results/{study}/.state/sanity.pt",
        code=lambda w: trial_code(
            w, "sanity", study(w).methods[sanity_method(w.study)], study(w).sanity.training
        ),
    script:
        "../scripts/job.py"


use rule train as sweep_trial with:
    input:
        unpack(lambda w: run_inputs(w.study, study(w).sweep.method, frames=w.frames)),
    output:
        model=temp("results/{study}/sweep/frames{frames}.safetensors"),
        history="results/{study}/sweep/frames{frames}.csv",
        record="results/{study}/sweep/frames{frames}.json",
    log:
        "results/{study}/logs/sweep/frames{frames}.log",
    benchmark:
        "results/{study}/benchmarks/sweep/frames{frames}.tsv"
    resources:
        gpu=lambda w: study(w).resources.gpus,
        runtime=TRAINING,
        require_gpu=lambda w: int(study(w).resources.require_gpu),
        workers=lambda w: study(w).frames.workers,
        keep_in_memory=lambda w: int(study(w).frames.keep_in_memory),
        state_folder=lambda w: study(w).resources.state_folder or "",
        mem_mb=study_mb,
    params:
        spec=lambda w: study(w).run_spec(study(w).sweep.method, study(w).sweep.training).fingerprint(),
        act="train",
        name="sweep/frames{frames}",
        dataset=lambda w: study(w).dataset,
        seed=lambda w: study(w).sweep.seed,
        max_frames=lambda w: int(w.frames),
        state="results/{study}/.state/sweep/frames{frames}.pt",
        code=lambda w: trial_code(
            w, "train", study(w).methods[study(w).sweep.method], study(w).sweep.training
        ),


checkpoint sweep:
    """Choose max_frames on validation; without a sweep the study's own value is written down."""
    input:
        lambda w: expand(
            "results/{study}/sweep/frames{frames}.json",
            study=w.study,
            frames=study(w).sweep.max_frames if study(w).sweep else [],
        ),
    output:
        table="results/{study}/sweep/max_frames.csv",
        best="results/{study}/sweep/best.json",
    log:
        "results/{study}/logs/sweep.log",
    benchmark:
        "results/{study}/benchmarks/sweep.tsv"
    resources:
        mem_mb=least_mb,
    params:
        default=lambda w: study(w).frames.max_frames,
        code=lambda w: code(w, "sweep"),
    script:
        "../scripts/job.py"
