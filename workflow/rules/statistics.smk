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
        ranks=job(StudyPlan.rank_files),
        said=job(StudyPlan.run_metrics),
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
        mem_mb=job(compute.ranks_memory),
    params:
        runs=job(StudyPlan.runs),
        settings=plan.key("statistics"),
        pairs=plan.key("pairs"),
        compared=plan.key("compared_methods"),
        random=plan.key("random_factors"),
        metrics=plan.untracked(StudyPlan.own_metrics),
        code=plan.code("statistics"),
    script:
        "../scripts/statistics.py"


rule step_time:
    """Training steps of the verdict's methods, in turn on the same batches, in one process."""
    input:
        unpack(job(training.step_time_inputs)),
    output:
        "results/{study}/step_time.csv",
    log:
        "results/{study}/logs/step_time.log",
    benchmark:
        "results/{study}/benchmarks/step_time.tsv"
    # All of the machine, so that no other job slows the steps; torch takes as many threads as training does.
    threads: lambda w: workflow.cores or study(w).resources.threads
    resources:
        gpu=job(compute.one_gpu),
        mem_mb=job(compute.model_memory),
    params:
        specs=job(training.timed_specs),
        baseline=plan.key("tables.verdict.baseline"),
        rounds=plan.key("tables.verdict.rounds"),
        threads=lambda wildcards, input: study(wildcards).resources.threads,
        dataset=plan.key("dataset"),
        seed=lambda w: study(w).seeds[0],
        execution=plan.execution(),
        code=plan.code("step_time"),
    script:
        "../scripts/step_time.py"
