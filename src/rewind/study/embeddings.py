"""Keys of data sets that are vectors: who made them, and where they are."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from rewind.study.keys import NAME, SEEDS, Keys, key, required

ENCODERS = {"text": ("minilm", "clip"), "image": ("efficientnet_lite0", "clip")}
"""Built-in encoders of each side."""


class Encoder(Keys):
    """A frozen network that turns captions or pictures into vectors."""

    name: str = required(
        "`minilm` (packaged; captions), `efficientnet_lite0` (packaged; pictures), `clip` (open_clip's tower of this "
        "side, with local `weights`), or a dotted path of your own. With an `encoder`: the model, as that calls it."
    )
    encoder: str | None = key(
        None,
        "What loads `name`, as in the options of `model: vectors` (docs/encoders.md): `open_clip`, `transformers`, "
        "`sentence_transformers`, `mteb`, or a dotted path. None: the networks above.",
        before=None,
        min_length=1,
    )
    revision: str | None = key(None, "`encoder`: revision of a model on the hub.", before=None, min_length=1)
    precision: Literal["fp32", "fp16", "bf16"] = key(
        "fp32", "`encoder`: numbers that the model computes with.", before="fp32"
    )
    encoder_options: dict[str, Any] = key({}, "`encoder`: its further options.", before={})
    architecture: str = key("ViT-B-32-quickgelu", "`clip`: open_clip's model name, or a JSON file in its format.")
    weights: str | None = key(None, "`clip`: local weights file.")
    family: Literal["openai", "open_clip"] | None = key(
        None, "`clip`: origin of weights whose file does not show it, as in `backbone.family`."
    )
    allow_torchscript: bool = key(False, "`clip`: allow a TorchScript archive. Only for files that you trust.")


class MadeFrom(Keys):
    """Vectors that Rewind makes from another dataset of captioned clips or images."""

    dataset: str = required(
        "Name of a file in `config/datasets`; its split is kept, its reversed twins are left out.", pattern=NAME
    )
    text: Encoder = required("Encoder of the captions.")
    image: Encoder = required("Encoder of the images, or of the frames of clips, whose mean is used.")
    frames: int = key(8, "Number of frames of a clip that are encoded.", ge=1, le=512)
    size: int = key(224, "Side of the square that the image encoder sees, in pixels.", ge=16, le=1024)
    unit: bool = key(
        True,
        "Scale every vector to length 1. Otherwise geometry and the moment term of the loss also depend on lengths.",
    )
    dtype: Literal["float32", "float16"] = key("float32", "Number format in the file.")
    threads: int = key(1, "CPU threads of the encoding job.", ge=1, le=512)

    @property
    def sides(self) -> dict[str, Encoder]:
        """``text`` and ``image``."""
        return {"text": self.text, "image": self.image}


class EmbeddingsSource(Keys):
    """Vectors of captions and images, in the format of Mamiglia's challenge, or made by Rewind."""

    format: Literal["embeddings"] = required("Vectors in an npz, and which caption belongs to which image.")
    items: Literal["images", "videos"] = key(
        "images", "What the image vectors represent; affects only the words in tables."
    )
    train: str | None = key(None, "The npz with captions and images; none if the vectors are `made_from` a dataset.")
    captions: str | None = key(None, "captions.txt: `image,caption`, one line per caption vector, in their order.")
    splits: str | None = key(
        None,
        "CSV `image,split[,path]` with the split of every image and the path of its picture (relative to this "
        "dataset's results folder); none: a random split by image with `seed`.",
    )
    test: str | None = key(None, "npz of captions without images, for which a submission can be written.")
    made_from: MadeFrom | None = key(
        None, "Make the vectors from another dataset, instead of giving `train` and `captions`."
    )
    seed: int = key(42, "Seed of the split by image.", **SEEDS)
    valid_share: float = key(0.1, "Share of images in the validation split.", gt=0, lt=1)
    test_share: float = key(0.1, "Share of images in the test split.", gt=0, lt=1)
    max_gb: float | None = key(
        None, "Refuse vectors that unpack to more gigabytes than this; none: more than the free memory.", gt=0
    )

    @model_validator(mode="after")
    def _one_origin(self) -> EmbeddingsSource:
        if self.made_from is None and not (self.train and self.captions):
            raise ValueError("source.train and source.captions are both needed, or source.made_from")
        if self.made_from is not None and (self.train or self.captions or self.splits):
            raise ValueError("source.made_from makes train, captions and splits: remove those keys")
        if self.valid_share + self.test_share >= 1:
            raise ValueError("source.valid_share + source.test_share must leave something to train on (sum below 1)")
        return self
