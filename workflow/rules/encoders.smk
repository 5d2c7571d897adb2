"""Encoders: vectors of a data set's test split by models that studies name, for `model: vectors`.

Requires: the test split.
Produces: results/data/<dataset>/vectors/<encoding>/{captions.npz,items.npz,record.json}, shared by all studies.
"""


rule encode_vectors:
    """Encode test captions and items once with a model that is named, for every study that names it."""
    input:
        unpack(lambda w: clip_files(w.dataset)),
        item_table=rules.captions.output.item_table,
        captions="results/data/{dataset}/captions/{dataset}_test.csv",
        local=lambda w: own(encoding(w).files()),
    output:
        captions="results/data/{dataset}/vectors/{encoding}/captions.npz",
        item_vectors="results/data/{dataset}/vectors/{encoding}/items.npz",
        record="results/data/{dataset}/vectors/{encoding}/record.json",
    log:
        "results/data/{dataset}/logs/vectors/{encoding}.log",
    benchmark:
        "results/data/{dataset}/benchmarks/vectors/{encoding}.tsv"
    wildcard_constraints:
        encoding="|".join(re.escape(folder) for _, folder in ENCODINGS) or "(?!)",
    threads: lambda w: encoding_resource(w, "threads")
    resources:
        gpu=lambda w: encoding_resource(w, "gpus"),
        runtime=ENCODING,
        require_gpu=lambda w: encoding_resource(w, "require_gpu"),
        mem_mb=vectors_mb,
        # Not a parameter: no vectors are made anew for it.
        batch_size=lambda w: encoding(w).batch_size,
    params:
        encoding=lambda w: encoding(w).content(),
        dataset=lambda w: w.dataset,
        code=lambda w: code(
            w,
            "encode_vectors",
            full_name(ENCODERS, encoding(w).encoder),
            files=own(encoding(w).files()),
        ),
    script:
        "../scripts/job.py"
