"""The keys of one training run."""

from __future__ import annotations

from typing import Literal

from rewind.study.keys import Keys, key


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


class Training(Keys):
    """How a method is trained. A method may override any of these keys."""

    epochs: int = key(5, "Passes over the training split.", ge=1, le=10_000)
    batch: Batch = key(Batch(), "How captions and clips are put into batches.")
    objective: str = key("infonce", "Loss: a module of `rewind.objectives`, or a dotted path of your own.")
    lr: float = key(1e-4, "Learning rate of new parameters (the head).", gt=0, le=1)
    backbone_lr_multiplier: float = key(
        1e-3, "Learning rate of the pretrained towers as a multiple of `lr` (CLIP4Clip's `coef_lr`).", ge=0, le=1
    )
    weight_decay: float = key(0.2, "AdamW weight decay; biases, norms and the logit scale are not decayed.", ge=0, le=1)
    betas: tuple[float, float] = key((0.9, 0.98), "AdamW betas.")
    eps: float = key(1e-6, "AdamW epsilon.", gt=0, le=1e-2)
    warmup: float = key(
        0.1, "Share of the steps with linearly rising learning rate; cosine decay after it.", ge=0, lt=1
    )
    clip_norm: float = key(1.0, "Largest global gradient norm.", gt=0)
    freeze: list[Literal["text", "visual"]] = key(
        [], "Towers that are not trained. A frozen visual tower's frame features are computed once and cached."
    )
    select_setting: Literal["auto", "origin", "hard", "test"] = key(
        "auto",
        "Validation setting whose R@1+R@5+R@10 chooses the checkpoint; `auto`: hard where there are twins, else test.",
    )
    evaluate_every: int = key(1, "Validate after every so many epochs, and after the last.", ge=1)
    save_every_steps: int = key(200, "Steps between saved training states, besides each epoch's end.", ge=1)
