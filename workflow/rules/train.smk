"""Training: one job per (method, seed), resumable at any moment.

Requires: prepared data, sanity.json, sweep/best.json, where used the pre-trained backbone and cached features.
Produces: runs/<method>/seed<k>/{model.safetensors,history.csv,run.json,metrics.csv}; before them, where a study
pre-trains, pretrained/seed<k>/{model.safetensors,history.csv,run.json} and features/seed<k>/frames<n>.npz, or, where the
pre-training is shared or there is none, the same without seed<k>. Features of a tower without weights have seed<k> too.
"""


rule train:
    """Train one method with one seed; the best checkpoint on validation is kept."""
    input:
        unpack(lambda w: run_inputs(w.study, w.method, w.seed)),
    output:
        model="results/{study}/runs/{method}/seed{seed}/model.safetensors",
        history="results/{study}/runs/{method}/seed{seed}/history.csv",
        record="results/{study}/runs/{method}/seed{seed}/run.json",
        metrics="results/{study}/runs/{method}/seed{seed}/metrics.csv",
    log:
        "results/{study}/logs/train/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/train/{method}.seed{seed}.tsv"
    threads: lambda w: study(w).resources.threads
    resources:
        gpu=lambda w: training_gpus(w.study, w.method),
        runtime=lambda w: training_minutes(w.study, w.method),
        require_gpu=lambda w: int(study(w).resources.require_gpu),
        workers=lambda w: study(w).frames.workers,
        keep_in_memory=lambda w: int(study(w).frames.keep_in_memory),
        state_folder=lambda w: study(w).resources.state_folder or "",
        mem_mb=study_mb,
    params:
        spec=lambda w: study(w).run_spec(w.method, seed=w.seed).fingerprint(),
        name="{method}/seed{seed}",
        dataset=lambda w: study(w).dataset,
        seed=lambda w: int(w.seed),
        max_frames=None,
        state="results/{study}/.state/runs/{method}.seed{seed}.pt",
        code=lambda w: run_code(w, "train", w.method),
    script:
        "../scripts/job.py"


use rule train as pretrain with:
    input:
        unpack(lambda w: captions_of(w.study, "train", "valid")),
        unpack(lambda w: pixel_files(w.study, pretraining_frames(w.study))),
        item_table=item_table,
        described=lambda w: described(w.study),
        weights=lambda w: weights_of(w.study),
        sanity=lambda w: filled(rules.sanity.output[0], study=w.study) if study(w).sanity else [],
    output:
        model="results/{study}/pretrained{part}/model.safetensors",
        history="results/{study}/pretrained{part}/history.csv",
        record="results/{study}/pretrained{part}/run.json",
    log:
        "results/{study}/logs/pretrain{part}.log",
    benchmark:
        "results/{study}/benchmarks/pretrain{part}.tsv"
    threads: lambda w: study(w).pretraining.threads or study(w).resources.threads
    resources:
        gpu=lambda w: study(w).resources.gpus,
        runtime=TRAINING,
        require_gpu=lambda w: int(study(w).resources.require_gpu),
        workers=lambda w: study(w).frames.workers,
        keep_in_memory=lambda w: int(study(w).frames.keep_in_memory),
        state_folder=lambda w: study(w).resources.state_folder or "",
        mem_mb=study_mb,
    params:
        spec=lambda w: pretraining_spec(w.study),
        act="train",
        name="pre-training{part}",
        dataset=lambda w: study(w).dataset,
        seed=lambda w: pretraining_seed(w),
        max_frames=lambda w: study(w).pretraining.max_frames or study(w).frames.max_frames,
        state="results/{study}/.state/pretrained{part}.pt",
        code=lambda w: trial_code(w, "train", study(w).pretraining.method, study(w).pretraining.training),


rule features:
    """Frame features of a frozen visual tower, computed once for all runs that start from the same weights."""
    input:
        unpack(lambda w: captions_of(w.study, "train", "valid", "test")),
        unpack(lambda w: pixel_files(w.study, int(w.frames))),
        item_table=item_table,
        pretrained=lambda w: features_weights(w),
    output:
        "results/{study}/features{part}/frames{frames}.npz",
    log:
        "results/{study}/logs/features{part}/frames{frames}.log",
    benchmark:
        "results/{study}/benchmarks/features{part}/frames{frames}.tsv"
    threads: lambda w: study(w).resources.feature_threads or study(w).resources.threads
    resources:
        gpu=lambda w: min(1, study(w).resources.gpus),
        require_gpu=lambda w: int(study(w).resources.require_gpu),
        workers=lambda w: study(w).frames.workers,
        keep_in_memory=lambda w: int(study(w).frames.keep_in_memory),
        mem_mb=study_mb,
    params:
        spec=lambda w: features_spec(w.study),
        dataset=lambda w: study(w).dataset,
        max_frames=lambda w: int(w.frames),
        code=lambda w: code(
            w,
            "features",
            "rewind.models.clip4clip",
            full_name(MODELS, study(w).backbone.kind),
            files=[
                *own(json_files([study(w).backbone.architecture])),
                *([] if study(w).pretraining else weights_of(w.study)),
            ],
            heads=["meanP"],
        ),
    script:
        "../scripts/job.py"
