"""Analyses: what a study may ask besides its scores, a module of src/rewind/analyses each, with what its rules read.

Requires: ranks of every run; what else an analysis names.
Produces: statistics/<analysis>.csv and figures/<picture>.{png,pdf,svg}, as its rules say.
"""

for analysis_rule in analysis_rules().values():
    unnamed, named = plan.analysis_outputs(analysis_rule, report)

    rule:
        name:
            analysis_rule.name
        input:
            unpack(plan.analysis_inputs(analysis_rule)),
        output:
            *unnamed,
            **named,
        log:
            f"results/{{study}}/logs/{analysis_rule.log_name}.log",
        benchmark:
            f"results/{{study}}/benchmarks/{analysis_rule.log_name}.tsv"
        group:
            "report_{study}"
        resources:
            mem_mb=plan.analysis_memory(analysis_rule),
            runtime=compute.SHORT_MINUTES,
        params:
            **plan.analysis_params(analysis_rule),
        script:
            "../scripts/analysis.py"
