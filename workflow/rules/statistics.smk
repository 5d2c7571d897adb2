"""Statistics: intervals of every method, paired comparisons of every declared pair.

Requires: ranks of every run.
Produces: statistics/intervals.csv and statistics/pairs.csv.
"""


rule statistics:
    """Cluster bootstrap over queries; Holm's correction over the declared pairs."""
    input:
        metrics="results/{study}/metrics.csv",
        ranks="results/{study}/ranks",
    output:
        intervals=report(
            "results/{study}/statistics/intervals.csv", category="Results", caption="../report/intervals.rst"
        ),
        pairs=report(
            "results/{study}/statistics/pairs.csv", category="Results", caption="../report/pairs.rst"
        ),
    log:
        "results/{study}/logs/statistics.log",
    benchmark:
        "results/{study}/benchmarks/statistics.tsv"
    params:
        runs=lambda w: study(w).runs(),
        settings=lambda w: study(w).statistics.model_dump(mode="json"),
        pairs=lambda w: study(w).pairs(),
        code=lambda w: code("statistics.py"),
    script:
        "../scripts/statistics.py"
