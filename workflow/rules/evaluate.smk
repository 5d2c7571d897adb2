"""Evaluation: what each run's model scores, and the ranks and metrics that follow.

Requires: a run's model and the test split; for cosine gaps the validation split; for zero-shot the images' file.
Produces: similarity/<method>/seed<k>.npz, ranks/<method>/seed<k>.{parquet,json}, metrics.csv; where a study asks for them
order/<method>/seed<k>.parquet, cosines/<method>/seed<k>.npz and zero_shot/<method>/seed<k>.npz.
"""


rule similarity:
    """Score every test caption against every test clip."""
    input:
        unpack(job(scoring.scored_inputs)),
    output:
        "results/{study}/similarity/{method}/seed{seed}.npz",
    log:
        "results/{study}/logs/similarity/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/similarity/{method}.seed{seed}.tsv"
    wildcard_constraints:
        study=plan.studies_with("trained"),
    threads: plan.key("resources.threads")
    resources:
        gpu=job(compute.sharing_gpus),
        runtime=job(compute.encoding_minutes),
        mem_mb=job(compute.scoring_memory),
    params:
        spec=job(StudyPlan.evaluation_spec),
        dataset=plan.key("dataset"),
        execution=plan.execution(StudyPlan.run_spec),
        code=plan.code("similarity"),
    script:
        "../scripts/similarity.py"


rule ranks:
    """Ranks with honest ties for every query of one run, and its metrics."""
    input:
        item_table=job(StudyPlan.item_table),
        captions=job(StudyPlan.test_captions),
        similarity="results/{study}/similarity/{method}/seed{seed}.npz",
    output:
        ranks="results/{study}/ranks/{method}/seed{seed}.parquet",
        said="results/{study}/ranks/{method}/seed{seed}.json",
    log:
        "results/{study}/logs/ranks/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/ranks/{method}.seed{seed}.tsv"
    wildcard_constraints:
        study=plan.studies_with("trained"),
    group:
        "report_{study}"
    resources:
        mem_mb=job(compute.matrix_memory),
    params:
        dataset=plan.key("dataset"),
        settings=plan.key("evaluation.settings"),
        directions=plan.key("evaluation.directions"),
        item_to_text=plan.key("evaluation.item_to_text"),
        metrics=plan.untracked(StudyPlan.own_metrics),
        code=plan.code("ranks"),
    script:
        "../scripts/ranks.py"


rule rerank:
    """Score the first results of another run again, in the place of `similarity` and `ranks`."""
    input:
        unpack(job(scoring.rerank_inputs)),
    output:
        ranks="results/{study}/ranks/{method}/seed{seed}.parquet",
        said="results/{study}/ranks/{method}/seed{seed}.json",
    log:
        "results/{study}/logs/rerank/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/rerank/{method}.seed{seed}.tsv"
    wildcard_constraints:
        study=plan.studies_with("reranked"),
    threads: plan.key("resources.threads")
    resources:
        gpu=job(compute.sharing_gpus),
        runtime=job(compute.encoding_minutes),
        mem_mb=job(compute.scoring_memory),
    params:
        spec=job(StudyPlan.evaluation_spec),
        dataset=plan.key("dataset"),
        rerank=job(scoring.rerank_keys),
        encoding=job(scoring.reranking_encoder),
        state="results/{study}/.state/rerank/{method}.seed{seed}",
        settings=plan.key("evaluation.settings"),
        directions=plan.key("evaluation.directions"),
        item_to_text=plan.key("evaluation.item_to_text"),
        execution=plan.untracked(scoring.reranking_execution),
        metrics=plan.untracked(StudyPlan.own_metrics),
        code=plan.code("rerank"),
    script:
        "../scripts/rerank.py"


rule untrained_run:
    """All of a run that learns nothing and encodes nothing: precomputed vectors and scores, and chance.

    One short job in the place of `train`, `similarity` and `ranks`: each would start Python for less than a second's work.
    """
    input:
        unpack(job(scoring.untrained_inputs)),
    output:
        model="results/{study}/runs/{method}/seed{seed}/model.safetensors",
        history="results/{study}/runs/{method}/seed{seed}/history.csv",
        record="results/{study}/runs/{method}/seed{seed}/run.json",
        metrics="results/{study}/runs/{method}/seed{seed}/metrics.csv",
        similarity="results/{study}/similarity/{method}/seed{seed}.npz",
        ranks="results/{study}/ranks/{method}/seed{seed}.parquet",
        said="results/{study}/ranks/{method}/seed{seed}.json",
    log:
        "results/{study}/logs/untrained_run/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/untrained_run/{method}.seed{seed}.tsv"
    wildcard_constraints:
        study=plan.studies_with("untrained"),
    threads: plan.key("resources.threads")
    resources:
        gpu=0,
        mem_mb=job(compute.scoring_memory),
    params:
        spec=job(StudyPlan.run_spec),
        name="{method}/seed{seed}",
        dataset=plan.key("dataset"),
        seed=lambda w: int(w.seed),
        state="results/{study}/.state/runs/{method}.seed{seed}.pt",
        settings=plan.key("evaluation.settings"),
        directions=plan.key("evaluation.directions"),
        item_to_text=plan.key("evaluation.item_to_text"),
        execution=plan.execution(StudyPlan.run_spec),
        metrics=plan.untracked(StudyPlan.own_metrics),
        code=plan.code("untrained_run"),
    script:
        "../scripts/untrained_run.py"


rule blind_run:
    """All of a baseline that sees too little to answer Binary: fit it, score every caption against every item, rank.

    One job in the place of `train`, `similarity` and `ranks`: each would start Python for less than a second's work.
    """
    input:
        unpack(job(scoring.blind_inputs)),
    output:
        model="results/{study}/runs/{method}/seed{seed}/model.safetensors",
        history="results/{study}/runs/{method}/seed{seed}/history.csv",
        record="results/{study}/runs/{method}/seed{seed}/run.json",
        metrics="results/{study}/runs/{method}/seed{seed}/metrics.csv",
        similarity="results/{study}/similarity/{method}/seed{seed}.npz",
        ranks="results/{study}/ranks/{method}/seed{seed}.parquet",
        said="results/{study}/ranks/{method}/seed{seed}.json",
    log:
        "results/{study}/logs/blind_run/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/blind_run/{method}.seed{seed}.tsv"
    wildcard_constraints:
        study=plan.studies_with("blind"),
    threads: plan.key("resources.threads")
    resources:
        gpu=job(compute.blind_gpus),
        runtime=job(compute.blind_minutes),
        mem_mb=job(compute.scoring_memory),
    params:
        spec=job(StudyPlan.run_spec),
        name="{method}/seed{seed}",
        dataset=plan.key("dataset"),
        seed=lambda w: int(w.seed),
        state="results/{study}/.state/runs/{method}.seed{seed}.pt",
        left_out=job(scoring.blind_settings),
        directions=plan.key("evaluation.directions"),
        item_to_text=plan.key("evaluation.item_to_text"),
        execution=plan.execution(StudyPlan.run_spec),
        metrics=plan.untracked(StudyPlan.own_metrics),
        code=plan.code("blind_run"),
    script:
        "../scripts/blind_run.py"


rule metrics:
    """One table of the metrics of all runs."""
    input:
        said=job(StudyPlan.run_metrics),
    output:
        table=report("results/{study}/metrics.csv", category="Results", caption="../report/metrics.rst"),
    log:
        "results/{study}/logs/metrics.log",
    benchmark:
        "results/{study}/benchmarks/metrics.tsv"
    group:
        "report_{study}"
    params:
        runs=job(StudyPlan.runs),
        settings=plan.key("evaluation.settings"),
        code=plan.code("metrics"),
    script:
        "../scripts/metrics.py"


rule order_controls:
    """Rank one run's captions with every clip's frames in another order, or only one frame."""
    input:
        unpack(job(scoring.scored_inputs)),
    output:
        "results/{study}/order/{method}/seed{seed}.parquet",
    log:
        "results/{study}/logs/order_controls/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/order_controls/{method}.seed{seed}.tsv"
    threads: plan.key("resources.threads")
    resources:
        gpu=job(compute.sharing_gpus),
        runtime=job(compute.encoding_minutes),
        mem_mb=job(compute.whole_matrix_memory),
    params:
        spec=job(StudyPlan.evaluation_spec),
        dataset=plan.key("dataset"),
        setting=plan.key("order_setting"),
        controls=plan.key("evaluation.order"),
        execution=plan.execution(StudyPlan.run_spec),
        code=plan.code("order_controls"),
    script:
        "../scripts/order_controls.py"


rule probes:
    """What one run knows in addition to its ranks: pairs, several right answers, foils, direction, geometry."""
    input:
        unpack(job(scoring.probe_inputs)),
        similarity="results/{study}/similarity/{method}/seed{seed}.npz",
    output:
        "results/{study}/probes/{method}/seed{seed}.parquet",
    log:
        "results/{study}/logs/probes/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/probes/{method}.seed{seed}.tsv"
    threads: plan.key("resources.threads")
    resources:
        gpu=job(compute.probing_gpus),
        runtime=job(compute.encoding_minutes),
        mem_mb=job(compute.whole_matrix_memory),
    params:
        spec=job(StudyPlan.evaluation_spec),
        dataset=plan.key("dataset"),
        probes=job(scoring.probes_of),
        directions=plan.key("evaluation.directions"),
        execution=plan.execution(StudyPlan.run_spec),
        code=plan.code("probes"),
    script:
        "../scripts/probes.py"


rule cosines:
    """Cosines of captions and clips of validation and test, each by itself and after cross-attention of its pair."""
    input:
        unpack(job(scoring.cosine_inputs)),
    output:
        "results/{study}/cosines/{method}/seed{seed}.npz",
    log:
        "results/{study}/logs/cosines/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/cosines/{method}.seed{seed}.tsv"
    threads: plan.key("resources.threads")
    resources:
        gpu=job(compute.encoding_gpus),
        runtime=job(compute.encoding_minutes),
        mem_mb=job(compute.whole_matrix_memory),
    params:
        spec=job(StudyPlan.evaluation_spec),
        dataset=plan.key("dataset"),
        execution=plan.execution(StudyPlan.run_spec),
        code=plan.code("cosines"),
    script:
        "../scripts/cosines.py"


rule zero_shot:
    """Classify labelled images by prompts with one run's model."""
    input:
        unpack(plan.captions("train")),
        item_table=job(StudyPlan.item_table),
        best="results/{study}/sweep/best.json",
        model="results/{study}/runs/{method}/seed{seed}/model.safetensors",
        tuned=job(training.known_choice),
        images=job(training.zero_shot_images),
    output:
        "results/{study}/zero_shot/{method}/seed{seed}.npz",
    log:
        "results/{study}/logs/zero_shot/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/zero_shot/{method}.seed{seed}.tsv"
    threads: plan.key("resources.threads")
    resources:
        gpu=job(compute.sharing_gpus),
        runtime=job(compute.encoding_minutes),
        mem_mb=job(compute.model_memory),
    params:
        spec=job(scoring.zero_shot_spec),
        dataset=plan.key("dataset"),
        execution=plan.execution(StudyPlan.run_spec),
        code=plan.code("zero_shot"),
    script:
        "../scripts/zero_shot.py"
