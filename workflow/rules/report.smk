"""Report: tables, figures, and the page that holds them.

Requires: metrics, statistics, and the provenance of every run; for pictures of one run its model.
Produces: tables/*.{md,tex,html,csv}, tables/{tables.json,summary.txt}, figures/*.{png,pdf,svg}, embedding/*.npz, report.html,
report_data/; where batches are topical, batches.csv.
"""

FIGURE = "results/{{study}}/figures/{name}.{suffix}"


rule tables:
    """Tables per setting, of pairs, gaps and runs, as Markdown, LaTeX, HTML, CSV and JSON; the console shows the first."""
    input:
        unpack(plan.result_files),
        unpack(plan.table_files),
        unpack(plan.captions("train", "test")),
        described=plan.described,
        item_table=plan.item_table,
        records=plan.run_records,
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
        mem_mb=plan.ranks_memory,
    params:
        study=plan.study_keys,
        dataset=plan.dataset_keys,
        accepted=plan.accepted,
        templates=plan.table_templates,
        code=plan.code("tables"),
    script:
        "../scripts/tables.py"


rule figures:
    """Intervals, pairs, ranks, the gap between Origin and Hard, training curves, cumulative rank curve."""
    input:
        unpack(plan.result_files),
        records=plan.run_records,
        histories=plan.run_histories,
    output:
        report(
            expand(FIGURE, name=PICTURES, suffix=["png", "pdf"]),
            category="Figures",
            caption="../report/figures.rst",
        ),
        expand(FIGURE, name=PICTURES, suffix="svg"),
    log:
        "results/{study}/logs/figures.log",
    benchmark:
        "results/{study}/benchmarks/figures.tsv"
    group:
        "report_{study}"
    resources:
        mem_mb=plan.ranks_memory,
    params:
        study=plan.study_keys,
        dataset=plan.dataset_keys,
        code=plan.code("figures"),
    script:
        "../scripts/figures.py"


rule export_vectors:
    """Vectors of test captions and items: of the run that pictures show, or of any other by name."""
    input:
        unpack(plan.scored_inputs),
    output:
        "results/{study}/embedding/{method}.seed{seed}.npz",
    log:
        "results/{study}/logs/export_vectors/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/export_vectors/{method}.seed{seed}.tsv"
    threads: plan.key("resources.threads")
    resources:
        gpu=plan.encoding_gpus,
        runtime=plan.encoding_minutes,
        mem_mb=plan.model_memory,
    params:
        spec=plan.evaluation_spec,
        dataset=plan.key("dataset"),
        execution=plan.execution("run_spec"),
        code=plan.code("export_vectors"),
    script:
        "../scripts/export_vectors.py"


rule examples:
    """What one run found, a corner of its similarities, its space of captions and items."""
    input:
        unpack(plan.clip_files),
        captions=plan.test_captions,
        item_table=plan.item_table,
        similarity=plan.pictured_similarity,
        embedding=plan.pictured_vectors,
    output:
        report(
            expand(FIGURE, name=PICTURES_OF_A_RUN, suffix=["png", "pdf"]),
            category="Figures",
            caption="../report/examples.rst",
        ),
        expand(FIGURE, name=DRAWN_OF_A_RUN, suffix="svg"),
    log:
        "results/{study}/logs/examples.log",
    benchmark:
        "results/{study}/benchmarks/examples.tsv"
    group:
        "report_{study}"
    resources:
        mem_mb=plan.matrix_memory,
    params:
        dataset=plan.key("dataset"),
        run=plan.pictured_run,
        figures=plan.key("figures"),
        size=plan.thumbnail_size,
        setting=plan.pictured_setting,
        code=plan.code("examples"),
    script:
        "../scripts/examples.py"


use rule examples as examples_of_method with:
    output:
        report(
            expand(
                "results/{{study}}/figures/{{method}}/{name}.{suffix}",
                name=PICTURES_OF_A_RUN,
                suffix=["png", "pdf"],
            ),
            category="Figures",
            caption="../report/examples.rst",
        ),
        expand("results/{{study}}/figures/{{method}}/{name}.svg", name=DRAWN_OF_A_RUN),
    log:
        "results/{study}/logs/examples/{method}.log",
    benchmark:
        "results/{study}/benchmarks/examples/{method}.tsv"
    params:
        act="examples",  # whose script it is; finished jobs have it among their parameters
        dataset=plan.key("dataset"),
        run=plan.pictured_run,
        figures=plan.key("figures"),
        size=plan.thumbnail_size,
        setting=plan.pictured_setting,
        code=plan.code("examples_of_method", "examples"),


rule twin_figure:
    """Captions of Binary with clip and twin, and which of the two each method preferred."""
    input:
        unpack(plan.clip_files),
        captions=plan.test_captions,
        item_table=plan.item_table,
        similarity=plan.twin_similarity,
    output:
        report(
            multiext("results/{study}/figures/twin_examples", ".png", ".pdf"),
            category="Figures",
            caption="../report/twin_figure.rst",
        ),
    log:
        "results/{study}/logs/twin_figure.log",
    benchmark:
        "results/{study}/benchmarks/twin_figure.tsv"
    group:
        "report_{study}"
    resources:
        mem_mb=plan.matrix_memory,
    params:
        dataset=plan.key("dataset"),
        methods=plan.twin_methods,
        pictured=plan.pictured_label,
        figures=plan.key("figures"),
        size=plan.thumbnail_size,
        code=plan.code("twin_figure"),
    script:
        "../scripts/twin_figure.py"


rule page:
    """One page that opens from a disk: tables, figures, what ran on what, and every query to look into."""
    input:
        unpack(plan.result_files),
        unpack(plan.table_files),
        unpack(plan.clip_files),
        captions=plan.test_captions,
        item_table=plan.item_table,
        similarity=plan.similarity_files,
        records=plan.run_records,
        tables="results/{study}/tables",
        pictures=plan.page_pictures,
        drawings=plan.page_drawings,
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
        mem_mb=plan.page_memory,
    params:
        study=plan.study_keys,
        dataset=plan.dataset_keys,
        assets=plan.page_assets,
        code=plan.code("page"),
    script:
        "../scripts/page.py"
