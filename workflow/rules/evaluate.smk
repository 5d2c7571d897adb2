"""Evaluation: what each run's model scores, and the ranks and metrics that follow.

Requires: a run's model and the test split; for cosine gaps the validation split; for zero-shot the images' file.
Produces: similarity/<method>/seed<k>.npz, ranks/<method>/seed<k>.{parquet,json}, metrics.csv; where a study asks for them
order/<method>/seed<k>.parquet, cosines/<method>/seed<k>.npz and zero_shot/<method>/seed<k>.npz.
"""


rule similarity:
    """Score every test caption against every test clip."""
    input:
        unpack(plan.scored_inputs),
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
        gpu=plan.sharing_gpus,
        runtime=plan.encoding_minutes,
        mem_mb=plan.scoring_memory,
    params:
        spec=plan.evaluation_spec,
        dataset=plan.key("dataset"),
        execution=plan.execution("run_spec"),
        code=plan.code("similarity"),
    script:
        "../scripts/similarity.py"


rule ranks:
    """Ranks with honest ties for every query of one run, and its metrics."""
    input:
        item_table=plan.item_table,
        captions=plan.test_captions,
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
        mem_mb=plan.matrix_memory,
    params:
        dataset=plan.key("dataset"),
        settings=plan.key("evaluation.settings"),
        directions=plan.key("evaluation.directions"),
        item_to_text=plan.key("evaluation.item_to_text"),
        metrics=plan.untracked("own_metrics"),
        code=plan.code("ranks"),
    script:
        "../scripts/ranks.py"


rule rerank:
    """Score the first results of another run again, in the place of `similarity` and `ranks`."""
    input:
        unpack(plan.rerank_inputs),
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
        gpu=plan.sharing_gpus,
        runtime=plan.encoding_minutes,
        mem_mb=plan.scoring_memory,
    params:
        spec=plan.evaluation_spec,
        dataset=plan.key("dataset"),
        rerank=plan.rerank_keys,
        encoding=plan.reranking_encoder,
        state="results/{study}/.state/rerank/{method}.seed{seed}",
        settings=plan.key("evaluation.settings"),
        directions=plan.key("evaluation.directions"),
        item_to_text=plan.key("evaluation.item_to_text"),
        execution=plan.untracked("reranking_execution"),
        metrics=plan.untracked("own_metrics"),
        code=plan.code("rerank"),
    script:
        "../scripts/rerank.py"


rule untrained_run:
    """All of a run that learns nothing and encodes nothing: precomputed vectors and scores, and chance.

    One short job in the place of `train`, `similarity` and `ranks`: each would start Python for less than a second's work.
    """
    input:
        unpack(plan.untrained_inputs),
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
        mem_mb=plan.scoring_memory,
    params:
        spec=plan.run_spec,
        name="{method}/seed{seed}",
        dataset=plan.key("dataset"),
        seed=lambda w: int(w.seed),
        state="results/{study}/.state/runs/{method}.seed{seed}.pt",
        settings=plan.key("evaluation.settings"),
        directions=plan.key("evaluation.directions"),
        item_to_text=plan.key("evaluation.item_to_text"),
        execution=plan.execution("run_spec"),
        metrics=plan.untracked("own_metrics"),
        code=plan.code("untrained_run"),
    script:
        "../scripts/untrained_run.py"


rule blind_run:
    """All of a baseline that sees too little to answer Binary: fit it, score every caption against every item, rank.

    One job in the place of `train`, `similarity` and `ranks`: each would start Python for less than a second's work.
    """
    input:
        unpack(plan.blind_inputs),
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
        gpu=plan.blind_gpus,
        runtime=plan.blind_minutes,
        mem_mb=plan.scoring_memory,
    params:
        spec=plan.run_spec,
        name="{method}/seed{seed}",
        dataset=plan.key("dataset"),
        seed=lambda w: int(w.seed),
        state="results/{study}/.state/runs/{method}.seed{seed}.pt",
        left_out=plan.blind_settings,
        directions=plan.key("evaluation.directions"),
        item_to_text=plan.key("evaluation.item_to_text"),
        execution=plan.execution("run_spec"),
        metrics=plan.untracked("own_metrics"),
        code=plan.code("blind_run"),
    script:
        "../scripts/blind_run.py"


rule metrics:
    """One table of the metrics of all runs."""
    input:
        said=plan.run_metrics,
    output:
        table=report("results/{study}/metrics.csv", category="Results", caption="../report/metrics.rst"),
    log:
        "results/{study}/logs/metrics.log",
    benchmark:
        "results/{study}/benchmarks/metrics.tsv"
    group:
        "report_{study}"
    params:
        runs=plan.runs,
        settings=plan.key("evaluation.settings"),
        code=plan.code("metrics"),
    script:
        "../scripts/metrics.py"


rule order_controls:
    """Rank one run's captions with every clip's frames in another order, or only one frame."""
    input:
        unpack(plan.scored_inputs),
    output:
        "results/{study}/order/{method}/seed{seed}.parquet",
    log:
        "results/{study}/logs/order_controls/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/order_controls/{method}.seed{seed}.tsv"
    threads: plan.key("resources.threads")
    resources:
        gpu=plan.sharing_gpus,
        runtime=plan.encoding_minutes,
        mem_mb=plan.whole_matrix_memory,
    params:
        spec=plan.evaluation_spec,
        dataset=plan.key("dataset"),
        setting=plan.order_setting,
        controls=plan.key("evaluation.order"),
        execution=plan.execution("run_spec"),
        code=plan.code("order_controls"),
    script:
        "../scripts/order_controls.py"


rule probes:
    """What one run knows in addition to its ranks: pairs, several right answers, foils, direction, geometry."""
    input:
        unpack(plan.probe_inputs),
        similarity="results/{study}/similarity/{method}/seed{seed}.npz",
    output:
        "results/{study}/probes/{method}/seed{seed}.parquet",
    log:
        "results/{study}/logs/probes/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/probes/{method}.seed{seed}.tsv"
    threads: plan.key("resources.threads")
    resources:
        gpu=plan.probing_gpus,
        runtime=plan.encoding_minutes,
        mem_mb=plan.whole_matrix_memory,
    params:
        spec=plan.evaluation_spec,
        dataset=plan.key("dataset"),
        probes=plan.probes_of,
        directions=plan.key("evaluation.directions"),
        execution=plan.execution("run_spec"),
        code=plan.code("probes"),
    script:
        "../scripts/probes.py"


rule cosines:
    """Cosines of captions and clips of validation and test, each by itself and after cross-attention of its pair."""
    input:
        unpack(plan.cosine_inputs),
    output:
        "results/{study}/cosines/{method}/seed{seed}.npz",
    log:
        "results/{study}/logs/cosines/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/cosines/{method}.seed{seed}.tsv"
    threads: plan.key("resources.threads")
    resources:
        gpu=plan.encoding_gpus,
        runtime=plan.encoding_minutes,
        mem_mb=plan.whole_matrix_memory,
    params:
        spec=plan.evaluation_spec,
        dataset=plan.key("dataset"),
        execution=plan.execution("run_spec"),
        code=plan.code("cosines"),
    script:
        "../scripts/cosines.py"


rule zero_shot:
    """Classify labelled images by prompts with one run's model."""
    input:
        unpack(plan.captions("train")),
        item_table=plan.item_table,
        best="results/{study}/sweep/best.json",
        model="results/{study}/runs/{method}/seed{seed}/model.safetensors",
        tuned=plan.known_choice,
        images=plan.zero_shot_images,
    output:
        "results/{study}/zero_shot/{method}/seed{seed}.npz",
    log:
        "results/{study}/logs/zero_shot/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/zero_shot/{method}.seed{seed}.tsv"
    threads: plan.key("resources.threads")
    resources:
        gpu=plan.sharing_gpus,
        runtime=plan.encoding_minutes,
        mem_mb=plan.model_memory,
    params:
        spec=plan.zero_shot_spec,
        dataset=plan.key("dataset"),
        execution=plan.execution("run_spec"),
        code=plan.code("zero_shot"),
    script:
        "../scripts/zero_shot.py"
