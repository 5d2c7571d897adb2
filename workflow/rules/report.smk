"""Report: tables and figures.

Requires: metrics, statistics, and the provenance of every run.
Produces: tables/*.{md,tex,csv}, tables/summary.txt, figures/*.{png,pdf}.
"""


rule tables:
    """Tables per setting as Markdown, LaTeX and CSV; the console shows them too."""
    input:
        unpack(lambda w: report_inputs(w.study)),
        unpack(lambda w: captions_of(w.study, "train", "test")),
        item_table=lambda w: f"{data_folder(w.study)}/items.csv",
        records=lambda w: per_run(w.study, "results/{study}/runs/{method}/seed{seed}/run.json"),
    output:
        tables=report(
            directory("results/{study}/tables"),
            patterns=["{table}.md"],
            category="Tables",
            caption="../report/tables.rst",
        ),
    log:
        "results/{study}/logs/tables.log",
    benchmark:
        "results/{study}/benchmarks/tables.tsv"
    params:
        study=lambda w: study(w).model_dump(mode="json"),
        dataset=lambda w: DATASETS[study(w).dataset].model_dump(mode="json"),
        code=lambda w: code("tables.py"),
    script:
        "../scripts/tables.py"


rule figures:
    """Intervals per method, training curves, cumulative rank curve."""
    input:
        unpack(lambda w: report_inputs(w.study)),
        ranks="results/{study}/ranks",
        records=lambda w: per_run(w.study, "results/{study}/runs/{method}/seed{seed}/run.json"),
        histories=lambda w: per_run(w.study, "results/{study}/runs/{method}/seed{seed}/history.csv"),
    output:
        pictures=report(
            multiext(
                "results/{study}/figures/",
                "intervals.png",
                "intervals.pdf",
                "training_curves.png",
                "training_curves.pdf",
                "rank_curve.png",
                "rank_curve.pdf",
            ),
            category="Figures",
            caption="../report/figures.rst",
        ),
    log:
        "results/{study}/logs/figures.log",
    benchmark:
        "results/{study}/benchmarks/figures.tsv"
    params:
        study=lambda w: study(w).model_dump(mode="json"),
        dataset=lambda w: DATASETS[study(w).dataset].model_dump(mode="json"),
        code=lambda w: code("figures.py"),
    script:
        "../scripts/figures.py"


rule examples:
    """What a few test captions found, in one run."""
    input:
        captions=lambda w: captions_of(w.study, "test")["test"],
        item_table=lambda w: f"{data_folder(w.study)}/items.csv",
        similarity=lambda w: example_run(w.study),
    output:
        report(
            multiext("results/{study}/figures/examples", ".png", ".pdf"),
            category="Figures",
            caption="../report/examples.rst",
        ),
    log:
        "results/{study}/logs/examples.log",
    benchmark:
        "results/{study}/benchmarks/examples.tsv"
    params:
        dataset=lambda w: study(w).dataset,
        shown=lambda w: study(w).figures.examples,
        size=lambda w: min(study(w).frames.size, 112),
        setting=lambda w: (
            "hard" if "hard" in study(w).evaluation.settings else study(w).evaluation.settings[0]
        ),
        code=lambda w: code("examples.py"),
    script:
        "../scripts/examples.py"
