"""Training: the over-fitting check, pre-training, the sweep that fixes max_frames, trials that choose keys of methods,
and one job per (method, seed).

Every job resumes, killed at any moment.
Requires: prepared data; where used frame stores and cached features.
Produces: sanity.json; pretrained/seed<k>/{model.safetensors,history.csv,run.json}, without seed<k> where all runs share
one pre-training; sweep/{max_frames.csv,best.json}; sweep/<method>/seed<k>/{trials.csv,choice.json}; runs/<method>/seed<k>/{model.safetensors,history.csv,run.json,metrics.csv}.
"""


rule sanity:
    """A tiny subset must be over-fitted before real runs start."""
    input:
        unpack(plan.captions("train", "valid")),
        unpack(job(training.sanity_items)),
        described=job(StudyPlan.described),
        item_table=job(StudyPlan.item_table),
        weights=job(training.weights_files),
    output:
        "results/{study}/sanity.json",
    log:
        "results/{study}/logs/sanity.log",
    benchmark:
        "results/{study}/benchmarks/sanity.tsv"
    threads: plan.key("resources.threads")
    resources:
        gpu=plan.key("resources.gpus"),
        mem_mb=job(compute.model_memory),
    params:
        settings=plan.key("sanity", "check"),
        spec=job(training.sanity_spec),
        dataset=plan.key("dataset"),
        max_frames=plan.key("frames.max_frames"),
        state="results/{study}/.state/sanity.pt",
        execution=plan.execution(training.sanity_spec),
        code=plan.code("sanity"),
    script:
        "../scripts/sanity.py"


rule train:
    """Train one method with one seed; the best checkpoint on validation is kept."""
    input:
        unpack(job(training.train_inputs)),
    output:
        model="results/{study}/runs/{method}/seed{seed}/model.safetensors",
        history="results/{study}/runs/{method}/seed{seed}/history.csv",
        record="results/{study}/runs/{method}/seed{seed}/run.json",
        metrics="results/{study}/runs/{method}/seed{seed}/metrics.csv",
    log:
        "results/{study}/logs/train/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/train/{method}.seed{seed}.tsv"
    wildcard_constraints:
        study=plan.studies_with("trained", "reranked"),
    threads: plan.key("resources.threads")
    resources:
        gpu=job(compute.training_gpus),
        runtime=job(compute.training_minutes),
        mem_mb=job(compute.model_memory),
    params:
        spec=job(StudyPlan.run_spec),
        name="{method}/seed{seed}",
        dataset=plan.key("dataset"),
        seed=lambda w: int(w.seed),
        max_frames=None,
        state="results/{study}/.state/runs/{method}.seed{seed}.pt",
        execution=plan.execution(StudyPlan.run_spec),
        code=plan.code("train"),
    script:
        "../scripts/train.py"


use rule train as pretrain with:
    input:
        unpack(plan.captions("train", "valid")),
        unpack(job(training.pretraining_items)),
        item_table=job(StudyPlan.item_table),
        described=job(StudyPlan.described),
        weights=job(training.weights_files),
        sanity=job(training.sanity_file),
    output:
        model="results/{study}/pretrained{part}/model.safetensors",
        history="results/{study}/pretrained{part}/history.csv",
        record="results/{study}/pretrained{part}/run.json",
    log:
        "results/{study}/logs/pretrain{part}.log",
    benchmark:
        "results/{study}/benchmarks/pretrain{part}.tsv"
    wildcard_constraints:
        study=STUDY,
    threads: job(training.pretraining_threads)
    resources:
        gpu=plan.key("resources.gpus"),
        mem_mb=job(compute.model_memory),
    params:
        spec=job(training.pretraining_spec),
        act="train",  # whose script it is; finished jobs have it among their parameters
        name="pre-training{part}",
        dataset=plan.key("dataset"),
        seed=job(training.pretraining_seed),
        max_frames=job(items.pretraining_frames),
        state="results/{study}/.state/pretrained{part}.pt",
        execution=plan.execution(training.pretraining_spec),
        code=plan.code("pretrain", "train"),


use rule train as sweep_trial with:
    input:
        unpack(job(training.sweep_trial_inputs)),
    output:
        model=temp("results/{study}/sweep/frames{frames}.safetensors"),
        history="results/{study}/sweep/frames{frames}.csv",
        record="results/{study}/sweep/frames{frames}.json",
    log:
        "results/{study}/logs/sweep/frames{frames}.log",
    benchmark:
        "results/{study}/benchmarks/sweep/frames{frames}.tsv"
    wildcard_constraints:
        study=STUDY,
    resources:
        gpu=plan.key("resources.gpus"),
        mem_mb=job(compute.model_memory),
    params:
        spec=job(training.sweep_trial_spec),
        act="train",  # whose script it is; finished jobs have it among their parameters
        name="sweep/frames{frames}",
        dataset=plan.key("dataset"),
        seed=plan.key("sweep.seed"),
        max_frames=lambda w: int(w.frames),
        state="results/{study}/.state/sweep/frames{frames}.pt",
        execution=plan.execution(training.sweep_trial_spec),
        code=plan.code("sweep_trial", "train"),


checkpoint sweep:
    """Choose max_frames on validation; without a sweep the study's own value is written down."""
    input:
        job(training.sweep_trials),
    output:
        table="results/{study}/sweep/max_frames.csv",
        best="results/{study}/sweep/best.json",
    log:
        "results/{study}/logs/sweep.log",
    benchmark:
        "results/{study}/benchmarks/sweep.tsv"
    params:
        default=plan.key("frames.max_frames"),
        code=plan.code("sweep"),
    script:
        "../scripts/sweep.py"


use rule train as trial with:
    input:
        unpack(job(training.trial_inputs)),
    output:
        model=temp("results/{study}/sweep/{method}/seed{seed}/trial.{trial}.safetensors"),
        history="results/{study}/sweep/{method}/seed{seed}/trial.{trial}.csv",
        record="results/{study}/sweep/{method}/seed{seed}/trial.{trial}.json",
    log:
        "results/{study}/logs/trial/{method}.seed{seed}.{trial}.log",
    benchmark:
        "results/{study}/benchmarks/trial/{method}.seed{seed}.{trial}.tsv"
    wildcard_constraints:
        study=STUDY,
    params:
        spec=job(training.trial_spec),
        act="train",  # whose script it is; finished jobs have it among their parameters
        name="sweep/{method}/seed{seed}/{trial}",
        dataset=plan.key("dataset"),
        seed=lambda w: int(w.seed),
        max_frames=None,
        state="results/{study}/.state/sweep/{method}.seed{seed}.{trial}.pt",
        execution=plan.execution(training.trial_spec),
        code=plan.code("trial", "train"),


checkpoint tune:
    """Choose a method's keys by the validation scores of its trials."""
    input:
        job(training.trial_records),
    output:
        table="results/{study}/sweep/{method}/seed{seed}/trials.csv",
        choice="results/{study}/sweep/{method}/seed{seed}/choice.json",
    log:
        "results/{study}/logs/tune/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/tune/{method}.seed{seed}.tsv"
    params:
        trials=job(training.trials_of),
        metric=job(training.select_metric),
        code=plan.code("tune"),
    script:
        "../scripts/tune.py"
