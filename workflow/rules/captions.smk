"""Captions: from annotations and the video report to items.csv and one CSV per split.

Requires: annotations and results/data/<dataset>/videos/report.csv.
Produces: items.csv, captions/<dataset>_{train,valid,test,test_origin}.csv and captions/report.json; where captions are
in groups, captions/groups.csv.
"""


rule captions:
    """Join annotations with the video report; nothing disappears without a count."""
    input:
        source_files,
        report="results/data/{dataset}/videos/report.csv",
        inventory=lambda w: overlapping(w.dataset),
    output:
        item_table="results/data/{dataset}/items.csv",
        captions=multiext(
            "results/data/{dataset}/captions/{dataset}_",
            "train.csv",
            "valid.csv",
            "test.csv",
            "test_origin.csv",
        ),
        report=report(
            "results/data/{dataset}/captions/report.json", category="Data", caption="../report/captions.rst"
        ),
    log:
        "results/data/{dataset}/logs/captions.log",
    benchmark:
        "results/data/{dataset}/benchmarks/captions.tsv"
    group:
        lambda w: closing(w.dataset)
    resources:
        runtime=SHORT,
        mem_mb=annotations_mb,
    params:
        dataset=lambda w: dataset(w).model_dump(
            mode="json",
            include={"name", "source", "reverse"}
            | ({"image"} if dataset(w).items == "images" else set())
            | ({"clips"} if not dataset(w).clips else set())
            | given_keys(dataset(w)),
        ),
        code=lambda w: code(
            w, "captions", full_name("rewind.data.formats", dataset(w).source.format), files=source_files(w)
        ),
    script:
        "../scripts/job.py"


rule groups:
    """Which group each test caption is in; what is trained on captions does not depend on it."""
    input:
        source_files,
        lambda w: own(group_files(w.dataset)),
    output:
        "results/data/{dataset}/captions/groups.csv",
    log:
        "results/data/{dataset}/logs/groups.log",
    benchmark:
        "results/data/{dataset}/benchmarks/groups.tsv"
    group:
        lambda w: closing(w.dataset)
    resources:
        runtime=SHORT,
        mem_mb=annotations_mb,
    params:
        dataset=lambda w: dataset(w).fingerprint(
            include={"name", "source", "reverse", "groups"}
            | ({"clips"} if not dataset(w).clips else set())
            | given_keys(dataset(w)),
        ),
        code=lambda w: code(
            w,
            "groups",
            full_name("rewind.data.formats", dataset(w).source.format),
            files=[*source_files(w), *group_files(w.dataset)],
        ),
    script:
        "../scripts/job.py"
