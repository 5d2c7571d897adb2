"""Data: from source files to normalised clips or images, to items.csv and the captions of every split.

Requires: annotation files and a folder of clips or images; a data set that is made here; or files of vectors.
Produces, in results/data/<dataset>: videos/shards/<n>-of-<N>.tar with `<id>.mp4` and the reversed `<id>_rev.mp4`, or
images; videos/{clips.csv,shards.csv,report.csv} and, where a method reads them, videos/traces.csv; for vectors source/{text,images}.npy and source/embeddings.json instead;
items.csv, captions/<dataset>_{train,valid,test,test_origin}.csv, captions/report.json and, where captions are in groups,
captions/groups.csv.
"""


rule sources:
    """Make or fetch the source files of a data set that comes with its own."""
    input:
        job(DatasetPlan.annotations),
    output:
        ready="results/data/{dataset}/source/ready.json",
        files="results/data/{dataset}/source.tar",
    log:
        "results/data/{dataset}/logs/sources.log",
    benchmark:
        "results/data/{dataset}/benchmarks/sources.tsv"
    wildcard_constraints:
        dataset=plan.names(vectors=False),
    group:
        job(DatasetPlan.preparation_group)
    threads: plan.key("media.workers")
    resources:
        mem_mb=job(DatasetPlan.annotation_memory),
    params:
        dataset=job(DatasetPlan.source_keys),
        execution=plan.execution(),
        code=plan.code("sources"),
    script:
        "../scripts/sources.py"


use rule sources as vectors with:
    output:
        index="results/data/{dataset}/source/embeddings.json",
        ready="results/data/{dataset}/source/ready.json",
    log:
        "results/data/{dataset}/logs/vectors.log",
    benchmark:
        "results/data/{dataset}/benchmarks/vectors.tsv"
    wildcard_constraints:
        dataset=plan.names(vectors=True),
    params:
        act="sources",  # whose script it is; finished jobs have it among their parameters
        dataset=job(DatasetPlan.source_keys),
        execution=plan.execution(),
        code=plan.code("vectors", "sources"),


rule encode_dataset:
    """Encode captions and pictures of a prepared data set with frozen networks, into the challenge's files."""
    input:
        unpack(job(DatasetPlan.encode_dataset_inputs)),
    output:
        vectors="results/data/{dataset}/made/train.npz",
        captions="results/data/{dataset}/made/captions.txt",
        splits="results/data/{dataset}/made/splits.csv",
    log:
        "results/data/{dataset}/logs/encode_dataset.log",
    benchmark:
        "results/data/{dataset}/benchmarks/encode_dataset.tsv"
    wildcard_constraints:
        dataset=plan.names(vectors=True),
    threads: plan.key("source.made_from.threads")
    resources:
        mem_mb=job(DatasetPlan.encode_dataset_memory),
        gpu=job(DatasetPlan.encode_dataset_gpus),
    params:
        made_from=job(DatasetPlan.made_from_keys),
        execution=plan.execution(),
        code=plan.code("encode_dataset"),
    script:
        "../scripts/encode_dataset.py"


rule inventory:
    """List every clip or image that the annotations name, and where its source is."""
    input:
        job(DatasetPlan.source_files),
    output:
        "results/data/{dataset}/videos/inventory.csv",
    log:
        "results/data/{dataset}/logs/inventory.log",
    benchmark:
        "results/data/{dataset}/benchmarks/inventory.tsv"
    group:
        job(DatasetPlan.preparation_group)
    resources:
        mem_mb=job(DatasetPlan.annotation_memory),
    params:
        dataset=job(DatasetPlan.inventory_keys),
        execution=plan.execution(),
        listing=job(DatasetPlan.source_listing),
        code=plan.code("inventory"),
    script:
        "../scripts/inventory.py"


rule video_shard:
    """Normalise one shard of the clips, and reverse them; or of the images; and pack them.

    A killed job goes on where it was.
    """
    input:
        inventory="results/data/{dataset}/videos/inventory.csv",
        sources=job(DatasetPlan.packed_sources),
    output:
        report="results/data/{dataset}/videos/shards/{shard}-of-{shards}.csv",
        index="results/data/{dataset}/videos/shards/{shard}-of-{shards}.index.csv",
        clips="results/data/{dataset}/videos/shards/{shard}-of-{shards}.tar",
    log:
        "results/data/{dataset}/logs/videos/{shard}-of-{shards}.log",
    benchmark:
        "results/data/{dataset}/benchmarks/videos/{shard}-of-{shards}.tsv"
    group:
        job(DatasetPlan.shard_group)
    threads: plan.key("media.workers")
    resources:
        mem_mb=job(DatasetPlan.clip_memory),
    params:
        kind=plan.key("items"),
        media=job(DatasetPlan.media_keys),
        # An edit of the stage runs the shard again, but only an edit of what makes a clip remakes clips.
        clip_code=plan.clip_code,
        code=plan.code("video_shard"),
    script:
        "../scripts/video_shard.py"


rule videos:
    """One report and one index over all shards; fails where more clips are missing than `max_missing` allows."""
    input:
        reports=job(DatasetPlan.shard_reports),
        indexes=job(DatasetPlan.shard_indexes),
    output:
        report="results/data/{dataset}/videos/report.csv",
        clips="results/data/{dataset}/videos/clips.csv",
        shards="results/data/{dataset}/videos/shards.csv",
    log:
        "results/data/{dataset}/logs/videos.log",
    benchmark:
        "results/data/{dataset}/benchmarks/videos.tsv"
    wildcard_constraints:
        dataset=plan.names(clips=True),
    group:
        job(DatasetPlan.captions_group)
    resources:
        mem_mb=job(DatasetPlan.annotation_memory),
    params:
        execution=plan.execution(),
        kind=plan.key("items"),
        code=plan.code("videos"),
    script:
        "../scripts/videos.py"


rule traces:
    """What of a clip's frames tells its direction and shows nothing: fields, coding, brightness, repeated frames.

    A killed job goes on where it was.
    """
    input:
        unpack(job(DatasetPlan.trace_inputs)),
    output:
        "results/data/{dataset}/videos/traces.csv",
    log:
        "results/data/{dataset}/logs/traces.log",
    benchmark:
        "results/data/{dataset}/benchmarks/traces.tsv"
    wildcard_constraints:
        dataset=plan.names(clips=True),
    threads: plan.key("media.workers")
    resources:
        mem_mb=job(DatasetPlan.clip_memory),
    params:
        media=job(DatasetPlan.media_keys),
        code=plan.code("traces"),
    script:
        "../scripts/traces.py"


rule vector_report:
    """The report that other data sets have of their clips: of vectors, and where no clip exists."""
    input:
        job(DatasetPlan.source_files),
    output:
        "results/data/{dataset}/videos/report.csv",
    log:
        "results/data/{dataset}/logs/vector_report.log",
    benchmark:
        "results/data/{dataset}/benchmarks/vector_report.tsv"
    wildcard_constraints:
        dataset=plan.names(clips=False),
    group:
        job(DatasetPlan.preparation_group)
    resources:
        mem_mb=job(DatasetPlan.annotation_memory),
    params:
        dataset=job(DatasetPlan.vector_report_keys),
        execution=plan.execution(),
        code=plan.code("vector_report"),
    script:
        "../scripts/vector_report.py"


rule captions:
    """Join annotations with the video report; nothing disappears without a count."""
    input:
        job(DatasetPlan.source_files),
        report="results/data/{dataset}/videos/report.csv",
        inventory=job(DatasetPlan.overlap_inventory),
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
        job(DatasetPlan.captions_group)
    resources:
        mem_mb=job(DatasetPlan.annotation_memory),
    params:
        dataset=job(DatasetPlan.caption_keys),
        execution=plan.execution(),
        code=plan.code("captions"),
    script:
        "../scripts/captions.py"


rule answers:
    """Which clips are right answers to each test caption, where there are several."""
    input:
        job(DatasetPlan.source_files),
        job(DatasetPlan.question_sources),
    output:
        "results/data/{dataset}/captions/answers.csv",
    log:
        "results/data/{dataset}/logs/answers.log",
    benchmark:
        "results/data/{dataset}/benchmarks/answers.tsv"
    group:
        job(DatasetPlan.captions_group)
    resources:
        mem_mb=job(DatasetPlan.annotation_memory),
    params:
        dataset=job(DatasetPlan.question_keys),
        execution=plan.execution(),
        code=plan.code("answers"),
    script:
        "../scripts/answers.py"


rule foils:
    """Captions that are not true of a clip, pairs of clips with a caption each, and what questions presuppose."""
    input:
        job(DatasetPlan.source_files),
        job(DatasetPlan.question_sources),
    output:
        foils="results/data/{dataset}/captions/foils.csv",
        caption_pairs="results/data/{dataset}/captions/caption_pairs.csv",
        proficiency="results/data/{dataset}/captions/proficiency.csv",
    log:
        "results/data/{dataset}/logs/foils.log",
    benchmark:
        "results/data/{dataset}/benchmarks/foils.tsv"
    group:
        job(DatasetPlan.captions_group)
    resources:
        mem_mb=job(DatasetPlan.annotation_memory),
    params:
        dataset=job(DatasetPlan.question_keys),
        execution=plan.execution(),
        code=plan.code("foils"),
    script:
        "../scripts/foils.py"


rule groups:
    """Which group each test caption is in; what is trained on captions does not depend on it."""
    input:
        job(DatasetPlan.source_files),
        job(DatasetPlan.group_files),
        unpack(job(DatasetPlan.sensitivity)),
    output:
        "results/data/{dataset}/captions/groups.csv",
    log:
        "results/data/{dataset}/logs/groups.log",
    benchmark:
        "results/data/{dataset}/benchmarks/groups.tsv"
    group:
        job(DatasetPlan.captions_group)
    resources:
        mem_mb=job(DatasetPlan.annotation_memory),
    params:
        dataset=job(DatasetPlan.group_keys),
        execution=plan.execution(),
        code=plan.code("groups"),
    script:
        "../scripts/groups.py"
