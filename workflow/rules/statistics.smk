"""Statistics: intervals and ranks of methods, comparisons of pairs, gaps, chance; and what tables show next to them.

Requires: ranks of every run; where a study asks for them its cosines, zero-shot classifications, groups of captions.
Produces: statistics/{intervals,pairs,gaps,ranks,chance}.csv; where captions are in groups statistics/groups.csv; cosine_gap.csv,
cosine_counts.csv and statistics/cosine_gap{,_pairs}.csv; for a
verdict (`tables.verdict`) step_time.csv and statistics/control.csv.
"""


rule statistics:
    """Error over training seeds and queries, with a bootstrap over queries next to it; Holm's correction over pairs."""
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
