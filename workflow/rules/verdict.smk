"""What the table of the verdict needs besides metrics and pairs, where a study says `tables.verdict`.

Requires: prepared data, sweep/best.json, caches as training has them; ranks of every run.
Produces: step_time.csv, statistics/control.csv.
"""


rule step_time:
    """Training steps of the verdict's methods, in turn on the same batches, in one process."""
    input:
        unpack(lambda w: run_inputs(w.study, verdict(w).baseline)),
    output:
        "results/{study}/step_time.csv",
    log:
        "results/{study}/logs/step_time.log",
    benchmark:
        "results/{study}/benchmarks/step_time.tsv"
    # All of the machine, so that no other job slows the steps; torch takes as many threads as training does.
    threads: lambda w: workflow.cores or study(w).resources.threads
    resources:
        gpu=lambda w: min(1, study(w).resources.gpus),
        require_gpu=lambda w: int(study(w).resources.require_gpu),
        mem_mb=study_mb,
    params:
        specs=lambda w: {name: timed_spec(w.study, name) for name in timed_methods(w.study)},
        baseline=lambda w: verdict(w).baseline,
        rounds=lambda w: verdict(w).rounds,
        threads=lambda w: study(w).resources.threads,
        dataset=lambda w: study(w).dataset,
        seed=lambda w: study(w).seeds[0],
        code=lambda w: run_code(w, "step_time", *timed_methods(w.study)),
    script:
        "../scripts/job.py"


rule control:
    """Gaps to the baseline, and how much smaller they are between the methods' counterparts."""
    input:
        ranks=lambda w: rank_files(w.study),
    output:
        "results/{study}/statistics/control.csv",
    log:
        "results/{study}/logs/control.log",
    benchmark:
        "results/{study}/benchmarks/control.tsv"
    group:
        "report_{study}"
    resources:
        runtime=SHORT,
        mem_mb=ranks_mb,
    params:
        runs=lambda w: [run for run in study(w).runs() if run[0] in controlled_methods(w.study)],
        verdict=lambda w: verdict(w).fingerprint(),
        setting=lambda w: verdict(w).where(study(w).evaluation.settings),
        confidence=lambda w: study(w).statistics.confidence,
        code=lambda w: code(w, "control"),
    script:
        "../scripts/job.py"
