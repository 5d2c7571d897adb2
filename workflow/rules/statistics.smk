"""Statistics: intervals and ranks of methods, comparisons of declared pairs, gaps between Origin and Hard.

Requires: ranks of every run.
Produces: statistics/intervals.csv, statistics/pairs.csv, statistics/gaps.csv and statistics/ranks.csv; where captions are
in groups, statistics/groups.csv.
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
        mem_mb=ranks_mb,
    params:
        runs=lambda w: study(w).runs(),
        settings=lambda w: study(w).statistics.fingerprint(),
        pairs=lambda w: study(w).pairs(),
        compared=lambda w: comparing.compared_methods(study(w)),
        random=lambda w: comparing.random_factors(study(w)),
        code=lambda w: code(w, "statistics"),
    script:
        "../scripts/job.py"


rule group_results:
    """The deciding metric of every method in every group of captions."""
    input:
        ranks=lambda w: rank_files(w.study),
        said=lambda w: per_run(w.study, rules.ranks.output.said),
        item_table=item_table,
        captions=lambda w: captions_of(w.study, "test")["test"],
        groups=lambda w: filled(rules.groups.output[0], dataset=study(w).dataset),
    output:
        "results/{study}/statistics/groups.csv",
    log:
        "results/{study}/logs/group_results.log",
    benchmark:
        "results/{study}/benchmarks/group_results.tsv"
    group:
        "report_{study}"
    resources:
        runtime=SHORT,
        mem_mb=ranks_mb,
    params:
        runs=lambda w: study(w).runs(),
        dataset=lambda w: study(w).dataset,
        deciding=lambda w: comparing.primary_metric_by_setting(study(w)),
        confidence=lambda w: study(w).statistics.confidence,
        compared=lambda w: comparing.compared_methods(study(w)),
        random=lambda w: comparing.random_factors(study(w)),
        code=lambda w: code(w, "group_results"),
    script:
        "../scripts/job.py"


rule group_figure:
    """Results by group in one setting."""
    input:
        group_results=rules.group_results.output[0],
    output:
        report(
            pictures(["groups_{setting}"]),
            category="Figures",
            caption="../report/group_figure.rst",
        ),
        drawings(["groups_{setting}"]),
    log:
        "results/{study}/logs/group_figure/{setting}.log",
    benchmark:
        "results/{study}/benchmarks/group_figure/{setting}.tsv"
    group:
        "report_{study}"
    resources:
        runtime=SHORT,
        mem_mb=least_mb,
    params:
        study=lambda w: study(w).fingerprint(),
        setting="{setting}",
        code=lambda w: code(w, "group_figure"),
    script:
        "../scripts/job.py"
