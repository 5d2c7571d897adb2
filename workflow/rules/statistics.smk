"""Statistics: intervals and ranks of methods, comparisons of declared pairs, gaps between Origin and Hard.

Requires: ranks of every run.
Produces: statistics/intervals.csv, statistics/pairs.csv, statistics/gaps.csv and statistics/ranks.csv.
"""


rule statistics:
    """Error over training seeds and queries, with a bootstrap over queries beside it; Holm's correction over pairs."""
    input:
        metrics="results/{study}/metrics.csv",
        ranks=lambda w: rank_files(w.study),
        said=lambda w: per_run(w.study, rules.ranks.output.said),
    output:
        intervals=report(
            "results/{study}/statistics/intervals.csv", category="Results", caption="../report/intervals.rst"
        ),
        pairs=report(
            "results/{study}/statistics/pairs.csv", category="Results", caption="../report/pairs.rst"
        ),
        gaps="results/{study}/statistics/gaps.csv",
        places="results/{study}/statistics/ranks.csv",
    log:
        "results/{study}/logs/statistics.log",
    benchmark:
        "results/{study}/benchmarks/statistics.tsv"
    group:
        "report_{study}"
    resources:
        runtime=SHORT,
    params:
        runs=lambda w: study(w).runs(),
        settings=lambda w: study(w).statistics.signature(),
        pairs=lambda w: study(w).pairs(),
        compared=lambda w: comparing.compared(study(w)),
        random=lambda w: comparing.random(study(w)),
        code=lambda w: code(w, "statistics"),
    script:
        "../scripts/job.py"
