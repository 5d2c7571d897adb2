"""Keys of training: batches, loss, optimiser, precision, frozen layers, checkpoint selection; trials before it."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any, Literal

from pydantic import field_validator, model_validator

from rewind.config.base import SEED_BOUNDS, ConfigModel, config_field, require_unique, required_field


class Batch(ConfigModel, affects="run"):
    """How captions and clips are put into batches.

    >>> Batch(sampler="pk", sampler_options={"captions": 2}).size
    128
    """

    size: int = config_field(
        128, "Global batch size: every caption is compared with this many clips, whatever the number of devices.", ge=2
    )
    twins_together: bool = config_field(
        False, "Put a clip and its reversed twin into the same batch, so that each is the other's hardest negative."
    )
    captions: Literal["all", "one"] = config_field(
        "all",
        "`all`: an epoch contains every (caption, clip) pair. `one`: every clip once, with a randomly drawn caption.",
    )
    sampler: str = config_field(
        "uniform",
        "Which captions share a batch: `uniform` (at random), `topical` (captions of one cluster together), `pk` "
        "(several captions of an item together), or the dotted path of your own module.",
    )
    sampler_options: dict[str, Any] = config_field(
        {},
        "Options of the sampler. `topical`: clusters (80), p_topical (0.5), temperature (0.7), max_spill (0.1), "
        "refresh_every (2), features (1000), random_state (0). `pk`: captions (2).",
    )


TOWERS = ("text", "visual")


class Lora(ConfigModel, affects="run"):
    """Low-rank adapters of towers (LoRA, arXiv 2106.09685): W + (alpha / rank) · B A, of which A and B are trained.

    >>> Lora(rank=4).alpha
    16.0
    """

    rank: int = config_field(8, "Rank of each adapter.", ge=1, le=1024)
    alpha: float = config_field(16.0, "Adapters are multiplied by `alpha / rank`.", gt=0)
    dropout: float = config_field(
        0.0, "Dropout before each adapter; modules of PyTorch's attention, as in open_clip, cannot have it.", ge=0, lt=1
    )
    towers: list[Literal["text", "visual"]] | None = config_field(
        None,
        "Towers that get adapters, of which nothing else is trained; all that `freeze` does not name if empty.",
        min_length=1,
    )
    targets: Literal["attention", "linear"] | list[str] = config_field(
        "attention",
        "Layers that get adapters: the projections of `attention`, every `linear` layer, or a list of layers by the "
        "ends of their names.",
    )

    @field_validator("towers")
    @classmethod
    def _once(cls, towers: list[str] | None) -> list[str] | None:
        return None if towers is None else require_unique(towers)


TWINS = "twins"
"""The value of ``training.hard_negatives`` that names no file."""


class Training(ConfigModel, affects="run"):
    """How a method is trained. A method may override any of these keys.

    >>> Training(epochs=2, freeze=["visual"]).compute()["training.freeze"]
    ['visual']
    """

    epochs: int = config_field(5, "Number of passes over the training split.", ge=1, le=10_000)
    epoch_steps: int | None = config_field(
        None,
        "Largest number of steps in an epoch, for a quick look at a study; none: an epoch sees every caption.",
        ge=1,
    )
    batch: Batch = config_field(Batch(), "How captions and clips are put into batches.")
    objective: str = config_field(
        "infonce",
        "Loss: `infonce`, `sigmoid`, `cdcr`, `hnac`, `sanw`, `multi_positive`, `negclip`, `ceclip`, `tact`, `tara`, or "
        "the dotted path of your own function or class.",
    )
    objective_options: dict[str, Any] = config_field(
        {},
        "Options of the loss. All: exclude (same_text, twins), pairs of a batch that are not negatives of each other, "
        "docs/rtime.md. `sanw`: mode (vanilla, debias, bandpass), alpha (0.5), lambda (4), delta (0.6), m1 "
        "(0.3), m2 (0.8), gamma (0.05), floor (0.001), similarity (live, teacher), row_normalise, seed_compatible. "
        "`infonce`, `hnac`: docs/cosine-gap.md. `sigmoid`: initial_bias (-10), temperature. `cdcr`: docs/heads.md. "
        "`multi_positive`: docs/translator.md. `negclip`, `ceclip`, `tact`, `tara`: docs/direction.md.",
    )
    hard_negatives: str | None = config_field(
        None,
        "Captions of the opposite direction, for losses that read them (`negclip`, `ceclip`, `tara`): `twins`, those "
        "of a clip's reversed twin, or a CSV file of opposites (docs/direction.md).",
        legacy_default=None,
        pattern=r"^(twins|.+\.csv)$",
    )
    lr: float = config_field(1e-4, "Learning rate of the new parameters (the head).", gt=0, le=1)
    backbone_lr_multiplier: float = config_field(
        1e-3, "Learning rate of the towers as a multiple of `lr` (CLIP4Clip's `coef_lr`).", ge=0, le=1
    )
    optimiser: Literal["adamw", "bert_adam"] = config_field(
        "adamw",
        "`adamw`: AdamW. `bert_adam`: CLIP4Clip's optimiser (no bias correction, each tensor's gradient clipped to "
        "norm 1, a cosine schedule that is not shifted by the warm-up, weight decay also on norm weights and the "
        "logit scale).",
    )
    weight_decay: float = config_field(
        0.2, "Weight decay; `adamw` exempts biases, norms and the logit scale, `bert_adam` only biases.", ge=0, le=1
    )
    betas: tuple[float, float] = config_field((0.9, 0.98), "Betas of the optimiser.")
    eps: float = config_field(1e-6, "Epsilon of the optimiser.", gt=0, le=1e-2)
    warmup: float = config_field(
        0.1, "Share of the steps in which the learning rate rises linearly; then it follows a cosine decay.", ge=0, lt=1
    )
    lr_floor: float = config_field(
        0.0,
        "Final learning rate of that decay as a share of `lr` (`adamw`; `bert_adam` has its own schedule).",
        ge=0,
        le=1,
        read_with={"optimiser": ["adamw"]},
    )
    warmup_from: Literal["first_step", "zero"] = config_field(
        "first_step",
        "Where that rise begins: after k of W steps the rate is (k + 1) / (W + 1) of `lr`, or with `zero` k / W, so "
        "that the first step moves nothing (`adamw`).",
        legacy_default="first_step",
        read_with={"optimiser": ["adamw"]},
    )
    clip_norm: float | None = config_field(
        1.0, "Gradients are clipped to this global norm; none: they are not clipped.", gt=0
    )
    micro_batch: int | Literal["auto"] | None = config_field(
        "auto",
        "Rows encoded at once on each GPU. This affects only memory: loss and gradients are those of the whole "
        "batch. None or 0: all rows; `auto`: all, then half as many whenever GPU memory runs out. tightTransf "
        "scores at most 4096 pairs at once, or fewer if that many texts with all clips are fewer pairs; `auto` "
        "halves these too.",
    )
    precision: Literal["fp32", "bf16", "fp16"] = config_field(
        "fp32",
        "Number format of the forward and backward pass; weights and optimiser state stay in fp32. fp16 scales the "
        "loss and needs a GPU; bf16 also works on CPUs. On a GPU fp32 multiplies in TF32: where that was measured, a "
        "step took longer than one of CLIP4Clip's scripts, whose towers have fp16 weights, and in bf16 less.",
    )
    gradient_checkpointing: bool = config_field(
        False,
        "Do not store activations inside the towers' blocks but recompute them in the backward pass: less memory, "
        "more time, the same gradients.",
    )
    compile: bool = config_field(
        False, "Compile the towers with torch.compile: slower to start, faster steps on a GPU."
    )
    deterministic: bool = config_field(
        True,
        "Use deterministic kernels of torch, cuDNN and cuBLAS and do not search for the fastest ones: the same seed"
        " gives the same bits on the same machine (docs/cluster.md explains what that means). If an operation has no"
        " deterministic kernel, the log names it.",
    )
    freeze: list[Literal["text", "visual"]] = config_field(
        [],
        "Towers that are not trained. If the visual tower is frozen, its frame features are computed once and cached; "
        "one with random weights is drawn again for each seed, and the tables say “random features”.",
    )
    lora: Lora | None = config_field(
        None,
        "Train low-rank adapters of the towers instead of their weights (LoRA, docs/encoders.md); needs the package "
        "peft. Adapters are new parameters and learn at `lr`.",
        legacy_default=None,
    )
    freeze_layers: int | None = config_field(
        None,
        "Freeze the embeddings and the first n blocks of both CLIP towers (CLIP4Clip's `freeze_layer_num`, whose "
        "recipe has 0: only the embeddings); none: nothing is frozen.",
        ge=0,
        le=96,
    )
    select_setting: Literal["auto", "origin", "hard", "test"] = config_field(
        "auto",
        "Validation setting whose scores choose the checkpoint; `auto`: `hard` if there are twins, else `test`.",
    )
    select_metric: Literal["sum", "R@1", "MRR", "mean R@1", "loss"] = config_field(
        "sum",
        "Validation score that chooses the checkpoint and is used by `patience`: `sum` (R@1 + R@5 + R@10), `R@1` "
        "and `MRR` of text→item search; `mean R@1` is the mean over both directions; `loss`: the lowest InfoNCE of the "
        "model's own scores (`valid_loss` of history.csv).",
    )
    keep: Literal["best", "last"] = config_field(
        "best", "Weights of a finished run: of its best validation, or of its last epoch.", legacy_default="best"
    )
    keep_every: int | None = config_field(
        None,
        "Also keep the weights after every n epochs, as `epochs/model.epoch<k>.safetensors` next to the run's; no rule "
        "knows these files, and a run that is trained again does not remove them.",
        legacy_default=None,
        ge=1,
        affects="nothing",
    )
    evaluate_every: int = config_field(1, "Validate after every n epochs, and after the last.", ge=1)
    patience: int | None = config_field(
        None, "Stop early after n validations in a row without a better score; none: train all epochs.", ge=1, le=10_000
    )
    save_every_steps: int = config_field(
        200, "Save the training state every n steps, in addition to the end of each epoch.", ge=1, affects="nothing"
    )

    def compute(self) -> dict[str, object]:
        """Keys that decide how much a training step computes, whatever the loss; steps are timed at equal values."""
        return {
            "training.batch.size": self.batch.size,
            "training.freeze": sorted(self.freeze),
            "training.precision": self.precision,
            "training.gradient_checkpointing": self.gradient_checkpointing,
            **({"training.lora": self.lora.model_dump(mode="json")} if self.lora else {}),
        }

    @field_validator("betas")
    @classmethod
    def _below_one(cls, betas: tuple[float, float]) -> tuple[float, float]:
        for beta in betas:
            if not 0 <= beta < 1:
                raise ValueError(f"{beta:g} is not a number from 0 to below 1")
        return betas

    @field_validator("freeze")
    @classmethod
    def _once(cls, towers: list[str]) -> list[str]:
        return require_unique(towers)

    @model_validator(mode="after")
    def _lora_fits(self) -> Training:
        if self.lora is None:
            return self
        towers = adapted_towers(self)
        if not towers or set(towers) & set(self.freeze):
            raise ValueError("lora: every tower of it is frozen; take the tower out of freeze, or lora out of training")
        if self.freeze_layers is not None:
            raise ValueError("lora and freeze_layers: with adapters no layer is trained itself; remove freeze_layers")
        return self

    @field_validator("micro_batch")
    @classmethod
    def _not_negative(cls, value: int | str | None) -> int | str | None:
        if isinstance(value, int) and value < 0:
            raise ValueError("a number of rows is needed, or auto, or null for the whole batch")
        return value


def adapted_towers(keys: Training) -> list[str]:
    """Towers that get the adapters of ``training.lora``; a function, as :func:`opposites_file`.

    >>> adapted_towers(Training(freeze=["visual"], lora={"rank": 4})), adapted_towers(Training())
    (['text'], [])
    """
    if keys.lora is None:
        return []
    return [*(keys.lora.towers or (tower for tower in TOWERS if tower not in keys.freeze))]


def opposites_file(keys: Training) -> str | None:
    """The file that ``training.hard_negatives`` names, if it names one.

    A function, not a method: jobs that call it have it in their identity, and not the whole class.

    >>> opposites_file(Training(hard_negatives="opposites.csv")), opposites_file(Training(hard_negatives="twins"))
    ('opposites.csv', None)
    """
    return None if keys.hard_negatives == TWINS else keys.hard_negatives


# ---- What is trained before real runs: the over-fitting check, and trials of numbers of frames ----------------------


class Sanity(ConfigModel, affects="check"):
    """The over-fitting check: a model must be able to over-fit a small subset before real runs start."""

    clips: int = config_field(200, "Number of training clips to over-fit (originals, one caption each).", ge=2, le=200)
    method: str = config_field("", "Method to use (one that is trained); the first such method if empty.")
    min_r1: float = config_field(
        0.9, "Training R@1 that must be reached, 0 to 1; with 0 it is reported but never fails.", ge=0, le=1
    )
    training: Training = config_field(Training(), "Overrides of the study's `training` keys for this check.")


class Range(ConfigModel, affects="run"):
    """Numbers from which random trials draw.

    >>> Range(low=1e-5, high=1e-3, log=True).draw(random.Random(0))
    0.000488
    """

    low: float = required_field("Smallest number.")
    high: float = required_field("Largest number.")
    log: bool = config_field(False, "Draw uniformly from logarithms.")

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if self.low >= self.high or (self.log and self.low <= 0):
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g}), and above 0 with log")
        return self

    def draw(self, generator: random.Random) -> float:
        """A number with three digits, which people can read and type."""
        if not self.log:
            return float(f"{generator.uniform(self.low, self.high):.3g}")
        return float(f"{math.exp(generator.uniform(math.log(self.low), math.log(self.high))):.3g}")


SearchSpace = dict[str, list[Any] | Range | None]
"""Path of a key inside of a method → values that are tried; None: the key is not tried for this method."""
MAX_TRIALS = 1000  # of a method
DRAWS_PER_TRIAL = 100  # most draws for each random trial: narrow spaces have fewer different ones
TUNABLE = ("training", "head_layers", "head_start", "options")
NOT_TUNABLE = {
    "training.freeze": "it decides which files a run reads",
    "training.hard_negatives": "it decides which files a run reads",
    **dict.fromkeys(
        ("training.epochs", "training.epoch_steps", "training.batch.size", "training.patience"),
        "it decides how long a method trains, which is the same for all that are compared",
    ),
    **dict.fromkeys(
        ("training.select_setting", "training.select_metric", "training.keep", "training.evaluate_every"),
        "it decides by which score trials are compared",
    ),
}
"""Keys of a method that trials cannot vary, and why."""


class Sweep(ConfigModel, affects="run"):
    """Choose on validation, before real runs: `frames.max_frames` once for all methods, and keys of each method.

    >>> sweep = Sweep(keys={"training.lr": [1e-4, 3e-4]}, methods={"seqTransf": {"head_layers": [2, 4]}})
    >>> sweep.trials_of("meanP"), len(sweep.trials_of("seqTransf"))
    ([{'training.lr': 0.0001}, {'training.lr': 0.0003}], 4)
    """

    max_frames: list[int] = config_field(
        [], "Values of `frames.max_frames` to try, from 1 to 512; empty: the study's own."
    )
    method: str = config_field("meanP", "Method to train with each value of `max_frames` (one that is trained).")
    seed: int = config_field(0, "Seed of these runs.", **SEED_BOUNDS)
    training: Training = config_field(
        Training(), "Overrides of that method's `training` keys for the trials of `max_frames`."
    )
    keys: SearchSpace = config_field(
        {},
        "Keys of methods that each trained method tries for itself, such as `training.lr: [1.0e-4, 3.0e-4]` or "
        "`training.lr: {low: 1.0e-5, high: 1.0e-3, log: true}` (docs/tuning.md).",
        legacy_default={},
    )
    methods: dict[str, SearchSpace] = config_field(
        {},
        "The same for single methods, in addition or instead; `null` for a key that a method does not try.",
        legacy_default={},
    )
    search: Literal["grid", "random"] = config_field(
        "grid", "`grid`: all combinations. `random`: `trials` of them, drawn with `seed`.", legacy_default="grid"
    )
    trials: int | None = config_field(
        None, "Number of random trials of each method.", legacy_default=None, ge=1, le=1000
    )
    repeat: bool = config_field(
        False,
        "Each seed tries and chooses for itself, so that the spread over seeds includes the choice; else one choice, "
        "made with `seed`, is for all seeds, and tables say so.",
        legacy_default=False,
    )

    @field_validator("max_frames")
    @classmethod
    def _numbers(cls, values: list[int]) -> list[int]:
        for value in values:
            if not 1 <= value <= 512:
                raise ValueError(f"{value} is not a number of frames from 1 to 512")
        return require_unique(values)

    @model_validator(mode="after")
    def _something_to_try(self) -> Sweep:
        if not (self.max_frames or self.tunes):
            raise ValueError("nothing to try: give max_frames, or keys; sweep: null skips it")
        if not self.tunes:
            return self
        if (self.search == "random") != (self.trials is not None):
            raise ValueError("search: random needs a number of trials, and grid has as many as there are combinations")
        spaces = (self.keys, *self.methods.values())
        for path, values in itertools.chain.from_iterable(space.items() for space in spaces):
            if path.partition(".")[0] not in TUNABLE or path == "training":
                raise ValueError(f"{path}: not a key of a method that trials can vary ({', '.join(TUNABLE)})")
            if reason := next((why for name, why in NOT_TUNABLE.items() if _is_part(path, name)), ""):
                raise ValueError(f"{path} cannot be varied: {reason}")
            if isinstance(values, Range) and self.search == "grid":
                raise ValueError(f"{path}: a range needs search: random; a grid has a list of values")
            if values == []:
                raise ValueError(f"{path}: no values to try; null leaves the key out")
            if isinstance(values, list) and len({repr(value) for value in values}) < len(values):
                raise ValueError(f"{path}: a value is listed twice; remove one")
        nothing = [path for path, values in self.keys.items() if values is None]
        for name, space in self.methods.items():
            nothing += [f"methods.{name}.{p}" for p, v in space.items() if v is None and self.keys.get(p) is None]
        if nothing:
            raise ValueError(f"{nothing[0]}: null leaves out a key that keys tries, and there is none; remove it")
        sizes = [math.prod(len(part) for part in space.values() if isinstance(part, list)) for space in spaces]
        if self.search == "grid" and (most := sizes[0] * max(sizes[1:], default=1)) > MAX_TRIALS:
            raise ValueError(f"a grid of up to {most:,} trials of a method; at most {MAX_TRIALS:,}: use search: random")
        return self

    @property
    def tunes(self) -> bool:
        """Whether keys of methods are tried."""
        return bool(self.keys or any(self.methods.values()))

    def trials_of(self, method: str) -> list[dict[str, Any]]:
        """The keys of every trial of a method, in a fixed order; random trials differ, as far as there are enough.

        Random trials depend on ``seed`` and on the method's name, so that no two methods share lucky draws.
        """
        both = self.keys | self.methods.get(method, {})
        space = {path: values for path, values in both.items() if values is not None}
        if self.search == "grid":
            lists = [values for values in space.values() if isinstance(values, list)]
            return [dict(zip(space, values, strict=True)) for values in itertools.product(*lists)] if space else []
        generator, trials = random.Random(f"{self.seed} {method}"), list[dict[str, Any]]()
        for _ in range(DRAWS_PER_TRIAL * (self.trials or 0)):
            if len(trials) == self.trials:
                break
            trial = {
                path: values.draw(generator) if isinstance(values, Range) else generator.choice(values)
                for path, values in space.items()
            }
            if trial and trial not in trials:
                trials.append(trial)
        return trials


def _is_part(path: str, name: str) -> bool:
    """Whether one path is the other or inside of it."""
    return f"{path}.".startswith(f"{name}.") or f"{name}.".startswith(f"{path}.")
