"""Report: tables, figures, and the page that holds them.

Requires: metrics, statistics, and the provenance of every run; for pictures of one run its model.
Produces: tables/*.{md,tex,html,csv}, tables/{tables.json,summary.txt}, figures/*.{png,pdf,svg}, embedding/*.npz, report.html,
report_data/; where batches are topical, batches.csv.
"""

FIGURE = "results/{{study}}/figures/{name}.{suffix}"


rule tables:
    """Tables per setting, of pairs, gaps and runs, as Markdown, LaTeX, HTML, CSV and JSON; the console shows the first."""
    input:
        unpack(job(reporting.result_files)),
        unpack(job(reporting.table_files)),
        unpack(plan.captions("train", "test")),
        described=job(StudyPlan.described),
        item_table=job(StudyPlan.item_table),
        records=job(StudyPlan.run_records),
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
        mem_mb=job(compute.ranks_memory),
    params:
        study=job(StudyPlan.study_keys),
        dataset=job(StudyPlan.dataset_keys),
        accepted=plan.accepted,
        templates=job(reporting.table_templates),
        code=plan.code("tables"),
    script:
        "../scripts/tables.py"


rule figures:
    """Intervals, pairs, ranks, the gap between Origin and Hard, training curves, cumulative rank curve."""
    input:
        unpack(job(reporting.result_files)),
        records=job(StudyPlan.run_records),
        histories=job(StudyPlan.run_histories),
    output:
        report(
            expand(FIGURE, name=reporting.PICTURES, suffix=["png", "pdf"]),
            category="Figures",
            caption="../report/figures.rst",
        ),
        expand(FIGURE, name=reporting.PICTURES, suffix="svg"),
    log:
        "results/{study}/logs/figures.log",
    benchmark:
        "results/{study}/benchmarks/figures.tsv"
    group:
        "report_{study}"
    resources:
        mem_mb=job(compute.ranks_memory),
    params:
        study=job(StudyPlan.study_keys),
        dataset=job(StudyPlan.dataset_keys),
        code=plan.code("figures"),
    script:
        "../scripts/figures.py"


rule export_vectors:
    """Vectors of test captions and items: of the run that pictures show, or of any other by name."""
    input:
        unpack(job(scoring.scored_inputs)),
    output:
        "results/{study}/embedding/{method}.seed{seed}.npz",
    log:
        "results/{study}/logs/export_vectors/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/export_vectors/{method}.seed{seed}.tsv"
    threads: plan.key("resources.threads")
    resources:
        gpu=job(compute.encoding_gpus),
        runtime=job(compute.encoding_minutes),
        mem_mb=job(compute.model_memory),
    params:
        spec=job(StudyPlan.evaluation_spec),
        dataset=plan.key("dataset"),
        execution=plan.execution(StudyPlan.run_spec),
        code=plan.code("export_vectors"),
    script:
        "../scripts/export_vectors.py"


rule examples:
    """What one run found, a corner of its similarities, its space of captions and items."""
    input:
        unpack(job(StudyPlan.clip_files)),
        captions=job(StudyPlan.test_captions),
        item_table=job(StudyPlan.item_table),
        similarity=job(reporting.pictured_similarity),
        embedding=job(reporting.pictured_vectors),
    output:
        report(
            expand(FIGURE, name=reporting.PICTURES_OF_A_RUN, suffix=["png", "pdf"]),
            category="Figures",
            caption="../report/examples.rst",
        ),
        expand(FIGURE, name=reporting.DRAWN_OF_A_RUN, suffix="svg"),
    log:
        "results/{study}/logs/examples.log",
    benchmark:
        "results/{study}/benchmarks/examples.tsv"
    group:
        "report_{study}"
    resources:
        mem_mb=job(compute.matrix_memory),
    params:
        dataset=plan.key("dataset"),
        run=job(reporting.pictured_run),
        figures=plan.key("figures"),
        size=job(reporting.thumbnail_size),
        setting=job(reporting.pictured_setting),
        code=plan.code("examples"),
    script:
        "../scripts/examples.py"


use rule examples as examples_of_method with:
    output:
        report(
            expand(
                "results/{{study}}/figures/{{method}}/{name}.{suffix}",
                name=reporting.PICTURES_OF_A_RUN,
                suffix=["png", "pdf"],
            ),
            category="Figures",
            caption="../report/examples.rst",
        ),
        expand("results/{{study}}/figures/{{method}}/{name}.svg", name=reporting.DRAWN_OF_A_RUN),
    log:
        "results/{study}/logs/examples/{method}.log",
    benchmark:
        "results/{study}/benchmarks/examples/{method}.tsv"
    params:
        act="examples",  # whose script it is; finished jobs have it among their parameters
        dataset=plan.key("dataset"),
        run=job(reporting.pictured_run),
        figures=plan.key("figures"),
        size=job(reporting.thumbnail_size),
        setting=job(reporting.pictured_setting),
        code=plan.code("examples_of_method", "examples"),


rule twin_figure:
    """Captions of Binary with clip and twin, and which of the two each method preferred."""
    input:
        unpack(job(StudyPlan.clip_files)),
        captions=job(StudyPlan.test_captions),
        item_table=job(StudyPlan.item_table),
        similarity=job(reporting.twin_similarity),
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
        mem_mb=job(compute.matrix_memory),
    params:
        dataset=plan.key("dataset"),
        methods=job(reporting.twin_methods),
        pictured=job(reporting.pictured_label),
        figures=plan.key("figures"),
        size=job(reporting.thumbnail_size),
        code=plan.code("twin_figure"),
    script:
        "../scripts/twin_figure.py"


rule page:
    """One page that opens from a disk: tables, figures, what ran on what, and every query to look into."""
    input:
        unpack(job(reporting.result_files)),
        unpack(job(reporting.table_files)),
        unpack(job(StudyPlan.clip_files)),
        captions=job(StudyPlan.test_captions),
        item_table=job(StudyPlan.item_table),
        similarity=job(StudyPlan.similarity_files),
        records=job(StudyPlan.run_records),
        tables="results/{study}/tables",
        pictures=job(reporting.page_pictures),
        drawings=job(reporting.page_drawings),
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
        mem_mb=job(compute.page_memory),
    params:
        study=job(StudyPlan.study_keys),
        dataset=job(StudyPlan.dataset_keys),
        assets=job(reporting.page_assets),
        code=plan.code("page"),
    script:
        "../scripts/page.py"
