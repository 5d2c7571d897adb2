"""On request: files for other evaluation tools, a submission to the challenge, and what a query costs.

Requires: finished runs; for a submission the npz that the data set's `source.test` names.
Produces: trec/; submission/<method>.seed<k>.csv; efficiency/{efficiency.csv,table_efficiency.*}.
"""


rule trec:
    """Files for other evaluation tools, up to gigabytes, so only on request: `snakemake results/demo/trec`."""
    input:
        item_table=job(StudyPlan.item_table),
        captions=job(StudyPlan.test_captions),
        similarity=job(StudyPlan.similarity_files),
    output:
        files=directory("results/{study}/trec"),
    log:
        "results/{study}/logs/trec.log",
    benchmark:
        "results/{study}/benchmarks/trec.tsv"
    resources:
        mem_mb=job(compute.matrix_memory),
    params:
        runs=plan.key("scored_runs"),
        dataset=plan.key("dataset"),
        settings=plan.key("evaluation.settings"),
        directions=plan.key("evaluation.directions"),
        code=plan.code("trec"),
    script:
        "../scripts/trec.py"


rule submission:
    """Vectors of a test npz: `snakemake results/translator/submission/geometry_adapter.seed0.csv`."""
    input:
        unpack(job(extras.submission_inputs)),
        npz=job(extras.submission_captions),
    output:
        "results/{study}/submission/{method}.seed{seed}.csv",
    log:
        "results/{study}/logs/submission/{method}.seed{seed}.log",
    benchmark:
        "results/{study}/benchmarks/submission/{method}.seed{seed}.tsv"
    threads: plan.key("resources.threads")
    resources:
        gpu=job(compute.encoding_gpus),
        runtime=job(compute.encoding_minutes),
        mem_mb=job(compute.model_memory),
    params:
        spec=job(StudyPlan.evaluation_spec),
        dataset=plan.key("dataset"),
        execution=plan.execution(StudyPlan.run_spec),
        code=plan.code("submission"),
    script:
        "../scripts/submission.py"


rule efficiency:
    """Sizes and times of every method's first run, measured: let nothing else run at the same time (`--cores 1`)."""
    input:
        unpack(job(extras.efficiency_inputs)),
    output:
        files=directory("results/{study}/efficiency"),
    log:
        "results/{study}/logs/efficiency.log",
    benchmark:
        "results/{study}/benchmarks/efficiency.tsv"
    threads: plan.key("resources.threads")
    resources:
        gpu=job(compute.one_gpu),
        mem_mb=job(compute.model_memory),
    params:
        spec=job(extras.measured_spec),
        methods=job(extras.measured_methods),
        title=job(extras.data_title),
        prefix=plan.key("tables.prefix"),
        dataset=plan.key("dataset"),
        execution=plan.execution(),
        templates=job(reporting.table_templates),
        code=plan.code("efficiency"),
    script:
        "../scripts/efficiency.py"
