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
        unpack(plan.sanity_items),
        described=plan.described,
        item_table=plan.item_table,
        weights=plan.weights,
    output:
        "results/{study}/sanity.json",
    log:
        "results/{study}/logs/sanity.log",
    benchmark:
        "results/{study}/benchmarks/sanity.tsv"
    threads: plan.key("resources.threads")
    resources:
        gpu=plan.key("resources.gpus"),
        mem_mb=plan.model_memory,
    params:
        settings=plan.key("sanity", "check"),
        spec=plan.sanity_spec,
        dataset=plan.key("dataset"),
        max_frames=plan.key("frames.max_frames"),
        state="results/{study}/.state/sanity.pt",
        execution=plan.execution("sanity_spec"),
        code=plan.code("sanity"),
    script:
        "../scripts/sanity.py"


rule train:
    """Train one method with one seed; the best checkpoint on validation is kept."""
    input:
        unpack(plan.train_inputs),
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
        gpu=plan.training_gpus,
        runtime=plan.training_minutes,
        mem_mb=plan.model_memory,
    params:
        spec=plan.run_spec,
        name="{method}/seed{seed}",
        dataset=plan.key("dataset"),
        seed=lambda w: int(w.seed),
        max_frames=None,
        state="results/{study}/.state/runs/{method}.seed{seed}.pt",
        execution=plan.execution("run_spec"),
        code=plan.code("train"),
    script:
        "../scripts/train.py"


use rule train as pretrain with:
    input:
        unpack(plan.captions("train", "valid")),
        unpack(plan.pretraining_items),
        item_table=plan.item_table,
        described=plan.described,
        weights=plan.weights,
        sanity=plan.sanity_file,
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
    threads: plan.pretraining_threads
    resources:
        gpu=plan.key("resources.gpus"),
        mem_mb=plan.model_memory,
    params:
        spec=plan.pretraining_spec,
        act="train",  # whose script it is; finished jobs have it among their parameters
        name="pre-training{part}",
        dataset=plan.key("dataset"),
        seed=plan.pretraining_seed,
        max_frames=plan.pretraining_frames,
        state="results/{study}/.state/pretrained{part}.pt",
        execution=plan.execution("pretraining_spec"),
        code=plan.code("pretrain", "train"),


use rule train as sweep_trial with:
    input:
        unpack(plan.sweep_trial_inputs),
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
        mem_mb=plan.model_memory,
    params:
        spec=plan.sweep_trial_spec,
        act="train",  # whose script it is; finished jobs have it among their parameters
        name="sweep/frames{frames}",
        dataset=plan.key("dataset"),
        seed=plan.key("sweep.seed"),
        max_frames=lambda w: int(w.frames),
        state="results/{study}/.state/sweep/frames{frames}.pt",
        execution=plan.execution("sweep_trial_spec"),
        code=plan.code("sweep_trial", "train"),


checkpoint sweep:
    """Choose max_frames on validation; without a sweep the study's own value is written down."""
    input:
        plan.sweep_trials,
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
        unpack(plan.trial_inputs),
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
        spec=plan.trial_spec,
        act="train",  # whose script it is; finished jobs have it among their parameters
        name="sweep/{method}/seed{seed}/{trial}",
        dataset=plan.key("dataset"),
        seed=lambda w: int(w.seed),
        max_frames=None,
        state="results/{study}/.state/sweep/{method}.seed{seed}.{trial}.pt",
        execution=plan.execution("trial_spec"),
        code=plan.code("trial", "train"),


checkpoint tune:
    """Choose a method's keys by the validation scores of its trials."""
    input:
        plan.trial_records,
    output:
        table="results/{study}/sweep/{method}/seed{seed}/trials.csv",
        choice="results/{study}/sweep/{method}/seed{seed}/choice.json",
    log:
        "results/{study}/logs/tune/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/tune/{method}.seed{seed}.tsv"
    params:
        trials=plan.trials,
        metric=plan.select_metric,
        code=plan.code("tune"),
    script:
        "../scripts/tune.py"
