"""Features: what is computed once of a data set's items, for all runs that read it.

Requires: items.csv and its clips; the captions; where used the pre-trained backbone.
Produces: frames/frames<n>/{index.json,items.csv,shards}, every clip decoded once, where a study says `frames.store: true`
and learns from pixels; features/frames<n>.npz of a frozen tower, with seed<k>/ before frames<n> where each seed has a
tower of its own; results/data/<dataset>/vectors/<encoding>/{captions.npz,items.npz,record.json} by models that studies
name, for `model: vectors`.
"""


rule frames:
    """Decode every usable clip once, for all runs of the study."""
    input:
        unpack(job(StudyPlan.clip_files)),
        item_table=job(StudyPlan.item_table),
    output:
        index="results/{study}/frames/frames{frames}/index.json",
        places="results/{study}/frames/frames{frames}/items.csv",
        shards=directory("results/{study}/frames/frames{frames}/shards"),
    log:
        "results/{study}/logs/frames/frames{frames}.log",
    benchmark:
        "results/{study}/benchmarks/frames/frames{frames}.tsv"
    threads: job(items.decoding_workers)
    resources:
        mem_mb=job(compute.decoding_memory),
    params:
        view=job(items.frame_view),
        # An edit of the stage runs the job again, but only an edit of how frames are read decodes again.
        frame_code=plan.code("frame"),
        code=plan.code("frames"),
    script:
        "../scripts/frames.py"


rule features:
    """Frame features of a frozen visual tower, computed once for all runs that start from the same weights."""
    input:
        unpack(plan.captions("train", "valid", "test")),
        unpack(job(items.feature_items)),
        item_table=job(StudyPlan.item_table),
        pretrained=job(items.features_weights),
    output:
        "results/{study}/features{part}/frames{frames}.npz",
    log:
        "results/{study}/logs/features{part}/frames{frames}.log",
    benchmark:
        "results/{study}/benchmarks/features{part}/frames{frames}.tsv"
    threads: job(items.feature_threads)
    resources:
        gpu=job(compute.one_gpu),
        mem_mb=job(compute.model_memory),
    params:
        spec=job(items.features_spec),
        dataset=plan.key("dataset"),
        max_frames=lambda w: int(w.frames),
        execution=plan.execution(items.features_run),
        code=plan.code("features"),
    script:
        "../scripts/features.py"


rule encode_foil_texts:
    """Encode captions that are not true of a clip with a model that is named, next to its vectors of true ones."""
    input:
        captions="results/data/{dataset}/vectors/{encoding}/captions.npz",
        foils="results/data/{dataset}/captions/foils.csv",
        local=job(DatasetPlan.encoder_files),
    output:
        "results/data/{dataset}/vectors/{encoding}/captions_and_foils.npz",
    log:
        "results/data/{dataset}/logs/vectors/{encoding}.foils.log",
    benchmark:
        "results/data/{dataset}/benchmarks/vectors/{encoding}.foils.tsv"
    wildcard_constraints:
        encoding=plan.encodings(),
    threads: job(DatasetPlan.encoding_threads)
    resources:
        gpu=job(DatasetPlan.foil_encoding_gpus),
        mem_mb=job(DatasetPlan.encoding_memory),
    params:
        encoding=job(DatasetPlan.encoding_keys),
        execution=plan.untracked(DatasetPlan.encoding_execution),
        code=plan.code("encode_foil_texts"),
    script:
        "../scripts/encode_foil_texts.py"


rule encode_vectors:
    """Encode test captions and items once with a model that is named, for every study that names it."""
    input:
        unpack(job(DatasetPlan.encode_vectors_inputs)),
    output:
        captions="results/data/{dataset}/vectors/{encoding}/captions.npz",
        item_vectors="results/data/{dataset}/vectors/{encoding}/items.npz",
        record="results/data/{dataset}/vectors/{encoding}/record.json",
    log:
        "results/data/{dataset}/logs/vectors/{encoding}.log",
    benchmark:
        "results/data/{dataset}/benchmarks/vectors/{encoding}.tsv"
    wildcard_constraints:
        encoding=plan.encodings(),
    threads: job(DatasetPlan.encoding_threads)
    resources:
        gpu=job(DatasetPlan.encoding_gpus),
        mem_mb=job(DatasetPlan.encoding_memory),
    params:
        encoding=job(DatasetPlan.encoding_keys),
        dataset="{dataset}",
        execution=plan.untracked(DatasetPlan.encoding_execution),
        code=plan.code("encode_vectors"),
    script:
        "../scripts/encode_vectors.py"
