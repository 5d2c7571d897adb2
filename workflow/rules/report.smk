"""Report: tables, figures, and the page that holds them.

Requires: metrics, statistics, and the provenance of every run; for pictures of one run its model.
Produces: tables/*.{md,tex,html,csv}, tables/summary.txt, figures/*.{png,pdf,svg}, embedding/*.npz, report.html, report_data/; where
batches are topical, batches.csv.
"""


rule tables:
    """Tables per setting, of pairs, gaps and runs, as Markdown, LaTeX, HTML and CSV; the console shows the first."""
    input:
        unpack(lambda w: report_inputs(w.study)),
        unpack(lambda w: table_inputs(w.study)),
        unpack(lambda w: captions_of(w.study, "train", "test")),
        described=lambda w: described(w.study),
        item_table=item_table,
        records=lambda w: per_run(w.study, rules.train.output.record),
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
    group:
        "report_{study}"
    resources:
        runtime=SHORT,
        mem_mb=ranks_mb,
    params:
        study=lambda w: study(w).fingerprint(),
        dataset=lambda w: DATASETS[study(w).dataset].fingerprint(),
        accepted=lambda w: accepted(w.study),
        code=lambda w: code(w, "tables"),
    script:
        "../scripts/job.py"


rule figures:
    """Intervals, pairs, ranks, the gap between Origin and Hard, training curves, cumulative rank curve."""
    input:
        unpack(lambda w: report_inputs(w.study)),
        records=lambda w: per_run(w.study, rules.train.output.record),
        histories=lambda w: per_run(w.study, rules.train.output.history),
    output:
        report(pictures(PICTURES), category="Figures", caption="../report/figures.rst"),
        drawings(PICTURES),
    log:
        "results/{study}/logs/figures.log",
    benchmark:
        "results/{study}/benchmarks/figures.tsv"
    group:
        "report_{study}"
    resources:
        runtime=SHORT,
        mem_mb=ranks_mb,
    params:
        study=lambda w: study(w).fingerprint(),
        dataset=lambda w: DATASETS[study(w).dataset].fingerprint(),
        code=lambda w: code(w, "figures"),
    script:
        "../scripts/job.py"


rule batches:
    """Epoch by epoch: the share of topical batches, their spill, and the clusters."""
    input:
        lambda w: [
            f"results/{w.study}/runs/{method}/seed{seed}/history.csv"
            for method, seed in topical_runs(w.study)
        ],
    output:
        "results/{study}/batches.csv",
        report(pictures(["batches"]), category="Figures", caption="../report/batches.rst"),
        drawings(["batches"]),
    log:
        "results/{study}/logs/batches.log",
    benchmark:
        "results/{study}/benchmarks/batches.tsv"
    group:
        "report_{study}"
    resources:
        runtime=SHORT,
        mem_mb=least_mb,
    params:
        runs=lambda w: topical_runs(w.study),
        study=lambda w: study(w).fingerprint(),
        code=lambda w: code(w, "batches"),
    script:
        "../scripts/job.py"


rule export_vectors:
    """Vectors of test captions and items: of the run that pictures show, or of any other by name."""
    input:
        unpack(lambda w: model_inputs(w, "train", "test")),
    output:
        "results/{study}/embedding/{method}.seed{seed}.npz",
    log:
        "results/{study}/logs/export_vectors/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/export_vectors/{method}.seed{seed}.tsv"
    threads: lambda w: study(w).resources.threads
    resources:
        gpu=lambda w: encoding_gpus(w.study, w.method),
        runtime=lambda w: encoding_minutes(w.study, w.method),
        require_gpu=lambda w: int(study(w).resources.require_gpu),
        workers=lambda w: study(w).frames.workers,
        mem_mb=study_mb,
    params:
        spec=lambda w: evaluation_spec(w.study, w.method, w.seed),
        dataset=lambda w: study(w).dataset,
        code=lambda w: model_code(w, "export_vectors", w.method),
    script:
        "../scripts/job.py"


rule examples:
    """What one run found, a corner of its similarities, its space of captions and items."""
    input:
        unpack(lambda w: clip_files(study(w).dataset)),
        captions=lambda w: captions_of(w.study, "test")["test"],
        item_table=item_table,
        similarity=lambda w: example_file(w.study, rules.similarity.output[0]),
        embedding=lambda w: example_file(w.study, rules.export_vectors.output[0]),
    output:
        report(pictures(PICTURES_OF_A_RUN), category="Figures", caption="../report/examples.rst"),
        drawings(DRAWN_OF_A_RUN),
    log:
        "results/{study}/logs/examples.log",
    benchmark:
        "results/{study}/benchmarks/examples.tsv"
    group:
        "report_{study}"
    resources:
        runtime=SHORT,
        mem_mb=matrix_mb,
    params:
        dataset=lambda w: study(w).dataset,
        run=lambda w: pictured_run(w.study),
        figures=lambda w: study(w).figures.fingerprint(),
        size=lambda w: min(study(w).frames.size, 112),
        setting=lambda w: example_setting(w.study),
        code=lambda w: code(w, "examples"),
    script:
        "../scripts/job.py"


use rule examples as examples_of_method with:
    input:
        unpack(lambda w: clip_files(study(w).dataset)),
        captions=lambda w: captions_of(w.study, "test")["test"],
        item_table=item_table,
        similarity=lambda w: example_file(w.study, rules.similarity.output[0], w.method),
        embedding=lambda w: example_file(w.study, rules.export_vectors.output[0], w.method),
    output:
        report(
            pictures([f"{{method}}/{name}" for name in PICTURES_OF_A_RUN]),
            category="Figures",
            caption="../report/examples.rst",
        ),
        drawings([f"{{method}}/{name}" for name in DRAWN_OF_A_RUN]),
    log:
        "results/{study}/logs/examples/{method}.log",
    benchmark:
        "results/{study}/benchmarks/examples/{method}.tsv"
    params:
        act="examples",
        dataset=lambda w: study(w).dataset,
        run=lambda w: pictured_run(w.study, w.method),
        figures=lambda w: study(w).figures.fingerprint(),
        size=lambda w: min(study(w).frames.size, 112),
        setting=lambda w: example_setting(w.study),
        code=lambda w: code(w, "examples"),


rule page:
    """One page that opens from a disk: tables, figures, what ran on what, and every query to look into."""
    input:
        unpack(lambda w: report_inputs(w.study)),
        unpack(lambda w: clip_files(study(w).dataset)),
        captions=lambda w: captions_of(w.study, "test")["test"],
        item_table=item_table,
        similarity=lambda w: per_run(w.study, rules.similarity.output[0]),
        records=lambda w: per_run(w.study, rules.train.output.record),
        tables="results/{study}/tables",
        pictures=lambda w: [
            f"results/{w.study}/figures/{name}.png" for name in study_pictures(w.study) + PICTURES_OF_A_RUN
        ],
        gap_pictures=lambda w: gap_pictures(w.study),
        drawings=lambda w: page_drawings(w.study),
        sweep="results/{study}/sweep/max_frames.csv",
    output:
        page=report("results/{study}/report.html", category="Report", caption="../report/page.rst"),
        # What the page of a large study reads on demand; of others it is empty.
        data=directory("results/{study}/report_data"),
    log:
        "results/{study}/logs/page.log",
    benchmark:
        "results/{study}/benchmarks/page.tsv"
    group:
        "report_{study}"
    resources:
        runtime=SHORT,
        mem_mb=page_mb,
    params:
        study=lambda w: study(w).fingerprint(),
        dataset=lambda w: DATASETS[study(w).dataset].fingerprint(),
        assets=assets_hash(),
        code=lambda w: code(w, "page"),
    script:
        "../scripts/job.py"
