"""Frames: every clip decoded once, where a study says `frames.store: true` and learns from pixels.

Requires: items.csv and its clips.
Produces: frames/frames<n>/{items.csv,index.json} and the shards that they name, in frames/frames<n>/shards.
"""


rule frames:
    """Decode every usable clip once, for all runs of the study."""
    input:
        unpack(lambda w: clip_files(study(w).dataset)),
        item_table=item_table,
    output:
        index="results/{study}/frames/frames{frames}/index.json",
        places="results/{study}/frames/frames{frames}/items.csv",
        shards=directory("results/{study}/frames/frames{frames}/shards"),
    log:
        "results/{study}/logs/frames/frames{frames}.log",
    benchmark:
        "results/{study}/benchmarks/frames/frames{frames}.tsv"
    threads: lambda w: max(1, study(w).frames.workers)
    resources:
        mem_mb=frames_mb,
    params:
        view=lambda w: {
            "max_frames": int(w.frames),
            **study(w).frames.fingerprint(include={"size", "sampling", "rate", "fit"}),
        },
        # An edit of the stage runs the job again, but only an edit of how frames are read decodes again.
        frame_code=lambda w: code(w, "frame"),
        code=lambda w: code(w, "frames"),
    script:
        "../scripts/job.py"
