"""Vectors: encoded from another data set where `made_from` says so, checked, and laid out for training.

Requires: an npz and captions.txt, or a prepared data set and local weights.
Produces: results/data/<dataset>/made/{train.npz,captions.txt,splits.csv}; source/{text,images}.npy and
source/embeddings.json, in place of clips; videos/report.csv, since every vector that is there is usable.
"""


use rule sources as vectors with:
    output:
        index="results/data/{dataset}/source/embeddings.json",
        ready="results/data/{dataset}/source/ready.json",
    log:
        "results/data/{dataset}/logs/vectors.log",
    benchmark:
        "results/data/{dataset}/benchmarks/vectors.tsv"
    wildcard_constraints:
        dataset=of_kind(vectors=True),
    params:
        act="sources",


rule encode_dataset:
    """Encode captions and pictures of a prepared data set with frozen networks, into the challenge's files."""
    input:
        unpack(lambda w: clip_files(origin(w).dataset)),
        item_table=lambda w: filled(rules.captions.output.item_table, dataset=origin(w).dataset),
        captions=lambda w: expand(
            "results/data/{name}/captions/{name}_{split}.csv",
            name=origin(w).dataset,
            split=["train", "valid", "test"],
        ),
        weights=lambda w: own(encoder_files(origin(w))),
    output:
        vectors="results/data/{dataset}/made/train.npz",
        captions="results/data/{dataset}/made/captions.txt",
        splits="results/data/{dataset}/made/splits.csv",
    log:
        "results/data/{dataset}/logs/encode_dataset.log",
    benchmark:
        "results/data/{dataset}/benchmarks/encode_dataset.tsv"
    wildcard_constraints:
        dataset=of_kind(vectors=True),
    threads: lambda w: origin(w).threads
    resources:
        mem_mb=making_mb,
        gpu=lambda w: making_gpus(w.dataset),
    params:
        made_from=lambda w: origin(w).fingerprint(exclude={"threads"}),
        code=lambda w: code(
            w,
            "encode_dataset",
            *encoder_modules(origin(w)),
            files=own(
                encoder_files(origin(w)) + json_files(e.architecture for e in origin(w).sides.values())
            ),
        ),
    script:
        "../scripts/job.py"


rule vector_report:
    """The report that other data sets have of their clips: of vectors, and where no clip is here."""
    input:
        source_files,
    output:
        "results/data/{dataset}/videos/report.csv",
    log:
        "results/data/{dataset}/logs/vector_report.log",
    benchmark:
        "results/data/{dataset}/benchmarks/vector_report.tsv"
    wildcard_constraints:
        dataset=with_clips(False),
    group:
        lambda w: preparing(w.dataset)
    resources:
        runtime=SHORT,
        mem_mb=annotations_mb,
    params:
        dataset=lambda w: dataset(w).fingerprint(
            include={"name", "source"}
            | given_keys(dataset(w))
            | (set() if dataset(w).vectors else {"reverse", "clips"})
        ),
        code=lambda w: code(
            w,
            "vector_report",
            full_name("rewind.data.formats", dataset(w).source.format),
            files=source_files(w),
        ),
    script:
        "../scripts/job.py"
