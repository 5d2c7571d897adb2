"""Statistics: intervals and ranks of methods, comparisons of pairs, gaps, chance; and what tables show beside them.

Requires: ranks of every run; where a study asks for them its cosines, zero-shot classifications, groups of captions.
Produces: statistics/{intervals,pairs,gaps,ranks,chance}.csv; where captions are in groups statistics/groups.csv; cosine_gap.csv,
cosine_counts.csv and statistics/cosine_gap{,_pairs}.csv; statistics/order.csv, statistics/blind.csv,
statistics/transductive.csv; zero_shot.csv and statistics/zero_shot{,_pairs}.csv; for a
verdict (`tables.verdict`) step_time.csv and statistics/control.csv.
"""


rule statistics:
    """Error over training seeds and queries, with a bootstrap over queries beside it; Holm's correction over pairs."""
    input:
        metrics="results/{study}/metrics.csv",
        ranks=plan.rank_files,
        said=plan.run_metrics,
    output:
        intervals=report(
            "results/{study}/statistics/intervals.csv", category="Results", caption="../report/intervals.rst"
        ),
        pairs=report(
            "results/{study}/statistics/pairs.csv", category="Results", caption="../report/pairs.rst"
        ),
        gaps="results/{study}/statistics/gaps.csv",
        places="results/{study}/statistics/ranks.csv",
        chance="results/{study}/statistics/chance.csv",
    log:
        "results/{study}/logs/statistics.log",
    benchmark:
        "results/{study}/benchmarks/statistics.tsv"
    group:
        "report_{study}"
    resources:
        mem_mb=plan.ranks_memory,
    params:
        runs=plan.runs,
        settings=plan.key("statistics"),
        pairs=plan.pairs,
        compared=plan.compared_methods,
        random=plan.random_factors,
        metrics=plan.untracked("own_metrics"),
        code=plan.code("statistics"),
    script:
        "../scripts/statistics.py"


rule group_results:
    """The deciding metric of every method in every group of captions."""
    input:
        ranks=plan.rank_files,
        said=plan.run_metrics,
        item_table=plan.item_table,
        captions=plan.test_captions,
        groups=plan.group_table,
    output:
        "results/{study}/statistics/groups.csv",
    log:
        "results/{study}/logs/group_results.log",
    benchmark:
        "results/{study}/benchmarks/group_results.tsv"
    group:
        "report_{study}"
    resources:
        mem_mb=plan.ranks_memory,
    params:
        runs=plan.runs,
        dataset=plan.key("dataset"),
        deciding=plan.primary_metrics,
        confidence=plan.key("statistics.confidence"),
        compared=plan.compared_methods,
        random=plan.random_factors,
        metrics=plan.untracked("own_metrics"),
        code=plan.code("group_results"),
    script:
        "../scripts/group_results.py"


rule cosine_gap:
    """How much closer captions are to their own clips than to others: every run, intervals, tests, counts."""
    input:
        item_table=plan.item_table,
        captions=plan.gap_captions,
        cosines=plan.cosine_files,
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
        mem_mb=plan.ranks_memory,
    params:
        runs=plan.runs,
        dataset=plan.key("dataset"),
        settings=plan.key("statistics"),
        pairs=plan.pairs,
        random=plan.random_factors,
        code=plan.code("cosine_gap"),
    script:
        "../scripts/cosine_gap.py"


rule order_table:
    """What frames in another order cost every method, with intervals and tests."""
    input:
        ranks=plan.order_ranks,
        controlled=plan.order_files,
    output:
        "results/{study}/statistics/order.csv",
    log:
        "results/{study}/logs/order_table.log",
    benchmark:
        "results/{study}/benchmarks/order_table.tsv"
    group:
        "report_{study}"
    resources:
        mem_mb=plan.ranks_memory,
    params:
        runs=plan.order_runs,
        setting=plan.order_setting,
        settings=plan.key("statistics"),
        random=plan.random_factors,
        metrics=plan.untracked("own_metrics"),
        code=plan.code("order_table"),
    script:
        "../scripts/order_table.py"


rule transductive:
    """What normalising scores over all test captions adds to every method, with intervals and tests."""
    input:
        item_table=plan.item_table,
        captions=plan.test_captions,
        ranks=plan.transductive_ranks,
        similarity=plan.transductive_similarity,
    output:
        "results/{study}/statistics/transductive.csv",
    log:
        "results/{study}/logs/transductive.log",
    benchmark:
        "results/{study}/benchmarks/transductive.tsv"
    group:
        "report_{study}"
    resources:
        mem_mb=plan.page_memory,
    params:
        runs=plan.transductive_runs,
        dataset=plan.key("dataset"),
        normalisations=plan.key("evaluation.transductive"),
        scales=plan.transductive_scales,
        setting=plan.transductive_setting,
        settings=plan.key("statistics"),
        random=plan.random_factors,
        metrics=plan.untracked("own_metrics"),
        code=plan.code("transductive"),
    script:
        "../scripts/transductive.py"


rule blind_table:
    """What every method's accuracy in Binary is beyond that of baselines which see too little to answer it."""
    input:
        ranks=plan.rank_files,
        said=plan.run_metrics,
    output:
        "results/{study}/statistics/blind.csv",
    log:
        "results/{study}/logs/blind_table.log",
    benchmark:
        "results/{study}/benchmarks/blind_table.tsv"
    group:
        "report_{study}"
    resources:
        mem_mb=plan.ranks_memory,
    params:
        runs=plan.runs,
        blind=plan.blind_methods,
        compared=plan.compared_methods,
        confidence=plan.key("statistics.confidence"),
        random=plan.random_factors,
        metrics=plan.untracked("own_metrics"),
        code=plan.code("blind_table"),
    script:
        "../scripts/blind_table.py"


rule probe_table:
    """What probes measure of every method, with intervals, and differences of the declared pairs."""
    input:
        probed=plan.probe_files,
    output:
        intervals="results/{study}/statistics/probes.csv",
        pairs="results/{study}/statistics/probe_pairs.csv",
    log:
        "results/{study}/logs/probe_table.log",
    benchmark:
        "results/{study}/benchmarks/probe_table.tsv"
    group:
        "report_{study}"
    resources:
        mem_mb=plan.ranks_memory,
    params:
        runs=plan.probed_runs,
        pairs=plan.pairs,
        confidence=plan.key("statistics.confidence"),
        random=plan.random_factors,
        code=plan.code("probe_table"),
    script:
        "../scripts/probe_table.py"


rule zero_shot_table:
    """A row per run, an interval per method over training seeds and images, a test per declared pair."""
    input:
        plan.zero_shot_files,
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
    params:
        runs=plan.zero_shot_runs,
        settings=plan.key("evaluation.zero_shot", "run"),
        confidence=plan.key("statistics.confidence"),
        random=plan.random_factors,
        pairs=plan.pairs,
        code=plan.code("zero_shot_table"),
    script:
        "../scripts/zero_shot_table.py"


rule control:
    """Gaps to the baseline, and how much smaller they are between the methods' counterparts."""
    input:
        ranks=plan.rank_files,
    output:
        "results/{study}/statistics/control.csv",
    log:
        "results/{study}/logs/control.log",
    benchmark:
        "results/{study}/benchmarks/control.tsv"
    group:
        "report_{study}"
    resources:
        mem_mb=plan.ranks_memory,
    params:
        runs=plan.controlled_runs,
        verdict=plan.key("tables.verdict", "statistics"),
        setting=plan.verdict_setting,
        confidence=plan.key("statistics.confidence"),
        metrics=plan.untracked("own_metrics"),
        code=plan.code("control"),
    script:
        "../scripts/control.py"


rule step_time:
    """Training steps of the verdict's methods, in turn on the same batches, in one process."""
    input:
        unpack(plan.step_time_inputs),
    output:
        "results/{study}/step_time.csv",
    log:
        "results/{study}/logs/step_time.log",
    benchmark:
        "results/{study}/benchmarks/step_time.tsv"
    # All of the machine, so that no other job slows the steps; torch takes as many threads as training does.
    threads: lambda w: workflow.cores or study(w).resources.threads
    resources:
        gpu=plan.one_gpu,
        mem_mb=plan.model_memory,
    params:
        specs=plan.timed_specs,
        baseline=plan.key("tables.verdict.baseline"),
        rounds=plan.key("tables.verdict.rounds"),
        threads=lambda wildcards, input: study(wildcards).resources.threads,
        dataset=plan.key("dataset"),
        seed=plan.first_seed,
        execution=plan.execution(),
        code=plan.code("step_time"),
    script:
        "../scripts/step_time.py"
