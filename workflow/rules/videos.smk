"""Clips: from source files to normalised `<id>.mp4` and reversed `<id>_rev.mp4`; images, to `<id>.png` or `<id>.jpg`.

Requires: annotation files and a folder of source clips or images (or a data set that is made here).
Produces: results/data/<dataset>/videos/shards/<n>-of-<N>.tar with the files; videos/clips.csv says where each is,
videos/shards.csv what each shard holds; videos/report.csv.
"""

MAKERS = {"videos": "clip", "images": "image"}


rule sources:
    """Make or fetch the source files of a data set that brings its own."""
    input:
        lambda w: own(annotation_files(dataset(w))),
    output:
        ready="results/data/{dataset}/source/ready.json",
        files="results/data/{dataset}/source.tar",
    log:
        "results/data/{dataset}/logs/sources.log",
    benchmark:
        "results/data/{dataset}/benchmarks/sources.tsv"
    wildcard_constraints:
        dataset=of_kind(vectors=False),
    group:
        lambda w: preparing(w.dataset)
    threads: lambda w: dataset(w).media.workers
    resources:
        runtime=SHORT,
        mem_mb=annotations_mb,
    params:
        dataset=lambda w: dataset(w).fingerprint(include={"name", "source", "reverse"}),
        workers=lambda w: dataset(w).media.workers,
        code=lambda w: code(
            w,
            "sources",
            full_name("rewind.data.formats", dataset(w).source.format),
            files=own(annotation_files(dataset(w))),
        ),
    script:
        "../scripts/job.py"


rule inventory:
    """List every clip or image that the annotations name, and where its source is."""
    input:
        lambda w: source_files(w),
    output:
        "results/data/{dataset}/videos/inventory.csv",
    log:
        "results/data/{dataset}/logs/inventory.log",
    benchmark:
        "results/data/{dataset}/benchmarks/inventory.tsv"
    group:
        lambda w: preparing(w.dataset)
    resources:
        runtime=SHORT,
        mem_mb=annotations_mb,
    params:
        dataset=lambda w: dataset(w).model_dump(
            mode="json",
            include={"name", "source", "reverse", "how_to_get", dataset(w).items.removesuffix("s")}
            | given_keys(dataset(w)),
        ),
        listing=lambda w: source_digest(dataset(w)),
        code=lambda w: code(
            w, "inventory", full_name("rewind.data.formats", dataset(w).source.format), files=source_files(w)
        ),
    script:
        "../scripts/job.py"


rule video_shard:
    """Normalise one shard of the clips, and reverse them; or of the images; and pack them.

    A killed job goes on where it was.
    """
    input:
        inventory="results/data/{dataset}/videos/inventory.csv",
        sources=lambda w: packed_sources(w.dataset),
    output:
        report="results/data/{dataset}/videos/shards/{shard}-of-{shards}.csv",
        index="results/data/{dataset}/videos/shards/{shard}-of-{shards}.index.csv",
        clips="results/data/{dataset}/videos/shards/{shard}-of-{shards}.tar",
    log:
        "results/data/{dataset}/logs/videos/{shard}-of-{shards}.log",
    benchmark:
        "results/data/{dataset}/benchmarks/videos/{shard}-of-{shards}.tsv"
    group:
        lambda w: together(w.dataset)
    threads: lambda w: dataset(w).media.workers
    resources:
        mem_mb=clips_mb,
    params:
        kind=lambda w: dataset(w).items,
        media=lambda w: dataset(w).media.fingerprint(exclude={"shards", "workers"}),
        # An edit of the stage runs the shard again, but only an edit of what makes a clip remakes clips.
        clip_code=lambda w: code(w, MAKERS[dataset(w).items]),
        code=lambda w: code(w, "video_shard", items=dataset(w).items),
    script:
        "../scripts/job.py"


rule videos:
    """One report and one index over all shards; fails where more clips are missing than `max_missing` allows."""
    input:
        reports=lambda w: shard_files(w.dataset, "csv"),
        indexes=lambda w: shard_files(w.dataset, "index.csv"),
    output:
        report="results/data/{dataset}/videos/report.csv",
        clips="results/data/{dataset}/videos/clips.csv",
        shards="results/data/{dataset}/videos/shards.csv",
    log:
        "results/data/{dataset}/logs/videos.log",
    benchmark:
        "results/data/{dataset}/benchmarks/videos.tsv"
    wildcard_constraints:
        dataset=with_clips(True),
    group:
        lambda w: closing(w.dataset)
    resources:
        runtime=SHORT,
        mem_mb=annotations_mb,
    params:
        max_missing=lambda w: dataset(w).max_missing,
        how_to_get=lambda w: dataset(w).how_to_get,
        kind=lambda w: dataset(w).items,
        code=lambda w: code(w, "videos"),
    script:
        "../scripts/job.py"
