"""The keys of one training run."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator

from rewind.study.keys import Keys, key, once


class Batch(Keys):
    """How captions and clips are put into batches."""

    size: int = key(128, "Global batch size: every caption sees this many clips, whatever the number of devices.", ge=2)
    twins_together: bool = key(
        False, "Put a clip and its reversed twin into the same batch, so that each is the other's hardest negative."
    )
    captions: Literal["all", "one"] = key(
        "all",
        "`all`: an epoch is every (caption, clip) pair. `one`: every clip once, with a caption drawn by the seed.",
    )
    sampler: str = key(
        "uniform",
        "Which captions share a batch: `uniform` (at random), `topical` (clusters of captions together), or a dotted "
        "path of your own.",
    )
    sampler_options: dict[str, Any] = key(
        {},
        "Options of the sampler. `topical`: clusters (80), p_topical (0.5), temperature (0.7), max_spill (0.1), "
        "refresh_every (2), features (1000), random_state (0).",
    )


class Training(Keys):
    """How a method is trained. A method may override any of these keys."""

    epochs: int = key(5, "Passes over the training split.", ge=1, le=10_000)
    epoch_steps: int | None = key(
        None, "Steps after which an epoch ends, for a quick look at a study; none: when every caption was seen.", ge=1
    )
    batch: Batch = key(Batch(), "How captions and clips are put into batches.")
    objective: str = key("infonce", "Loss: a module of `rewind.objectives`, or a dotted path of your own.")
    objective_options: dict[str, Any] = key(
        {},
        "Options of the loss. `sanw`: mode (vanilla, debias, bandpass), alpha (0.5), lambda (4), delta (0.6), "
        "m1 (0.3), m2 (0.8), gamma (0.05), floor (0.001), similarity (live, teacher), row_normalise, seed_compatible.",
    )
    lr: float = key(1e-4, "Learning rate of new parameters (the head).", gt=0, le=1)
    backbone_lr_multiplier: float = key(
        1e-3, "Learning rate of the pretrained towers as a multiple of `lr` (CLIP4Clip's `coef_lr`).", ge=0, le=1
    )
    optimiser: Literal["adamw", "bert_adam"] = key(
        "adamw",
        "`adamw`: AdamW. `bert_adam`: CLIP4Clip's own (no bias correction, each tensor's gradient clipped to norm 1, "
        "cosine not shifted by the warm-up, weights of norms and the logit scale decayed too).",
    )
    weight_decay: float = key(
        0.2, "Weight decay; `adamw` spares biases, norms and the logit scale, `bert_adam` biases alone.", ge=0, le=1
    )
    betas: tuple[float, float] = key((0.9, 0.98), "Betas of the optimiser.")
    eps: float = key(1e-6, "Epsilon of the optimiser.", gt=0, le=1e-2)
    warmup: float = key(
        0.1, "Share of the steps with linearly rising learning rate; cosine decay after it.", ge=0, lt=1
    )
    lr_floor: float = key(
        0.0, "Where that decay ends, as a share of `lr` (`adamw`; `bert_adam` has a schedule of its own).", ge=0, le=1
    )
    clip_norm: float = key(1.0, "Largest global gradient norm.", gt=0)
    micro_batch: int | Literal["auto"] | None = key(
        "auto",
        "Rows encoded at once on each GPU, a matter of memory alone: loss and gradients are the whole batch's. "
        "None or 0: all rows; `auto`: all, then half as many whenever GPU memory runs out. tightTransf scores 4096 "
        "pairs at once, or those of so many texts where these are fewer; `auto` halves them too.",
    )
    precision: Literal["fp32", "bf16", "fp16"] = key(
        "fp32",
        "Numbers of the forward and backward pass; weights and optimiser stay in fp32. fp16 scales the loss and is for "
        "GPUs; CPUs have bf16.",
    )
    gradient_checkpointing: bool = key(
        False,
        "Keep no activations inside the towers' blocks and compute them again on the way back: less memory, "
        "more time, the same gradients.",
    )
    compile: bool = key(False, "Compile the towers with torch.compile: slower to start, faster steps on a GPU.")
    deterministic: bool = key(
        True,
        "Deterministic kernels of torch, cuDNN and cuBLAS, and no search for the fastest: the same seed gives the same "
        "bits on the same machine. An operation without a deterministic kernel is named in the log.",
    )
    freeze: list[Literal["text", "visual"]] = key(
        [], "Towers that are not trained. A frozen visual tower's frame features are computed once and cached."
    )
    freeze_layers: int | None = key(
        None,
        "Freeze the embeddings and the first so many blocks of both CLIP towers (CLIP4Clip's `freeze_layer_num`, whose "
        "recipe has 0: the embeddings alone); none: nothing is frozen.",
        ge=0,
        le=96,
    )
    select_setting: Literal["auto", "origin", "hard", "test"] = key(
        "auto",
        "Validation setting whose scores choose the checkpoint; `auto`: hard where there are twins, else test.",
    )
    select_metric: Literal["sum", "R@1", "MRR", "mean R@1"] = key(
        "sum",
        "Validation score that chooses the checkpoint and counts for `patience`: `sum` is R@1+R@5+R@10 of text→item "
        "search, as are `R@1` and `MRR`; `mean R@1` is the mean of both directions.",
    )
    evaluate_every: int = key(1, "Validate after every so many epochs, and after the last.", ge=1)
    patience: int | None = key(
        None, "Stop early after so many validations in a row without a better score; none: all epochs.", ge=1, le=10_000
    )
    save_every_steps: int = key(200, "Steps between saved training states, besides each epoch's end.", ge=1)

    def compute(self) -> dict[str, object]:
        """Keys that decide how much is computed in a step, whatever the loss."""
        return {
            "training.batch.size": self.batch.size,
            "training.freeze": sorted(self.freeze),
            "training.precision": self.precision,
            "training.gradient_checkpointing": self.gradient_checkpointing,
        }

    @field_validator("betas")
    @classmethod
    def _below_one(cls, betas: tuple[float, float]) -> tuple[float, float]:
        for beta in betas:
            if not 0 <= beta < 1:
                raise ValueError(f"{beta:g} is no number from 0 to below 1")
        return betas

    @field_validator("freeze")
    @classmethod
    def _once(cls, towers: list[str]) -> list[str]:
        return once(towers)

    @field_validator("micro_batch")
    @classmethod
    def _not_negative(cls, value: int | str | None) -> int | str | None:
        if isinstance(value, int) and value < 0:
            raise ValueError("a number of rows is needed, or auto, or null for the whole batch")
        return value
