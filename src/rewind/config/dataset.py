"""Dataset files (``config/datasets/*.yaml``): where the raw data is, and how clips and images are normalised.

Each format has a class of its own; ``source.format`` selects it.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from rewind.config.base import (
    DRAFT_CONTEXT,
    GIVEN,
    NAME_PATTERN,
    NOT_GIVEN,
    SEED_BOUNDS,
    ConfigModel,
    LabelText,
    config_field,
    require_unique,
    required_field,
)
from rewind.config.encoders import Encoding, is_hidden

# ---- Datasets of precomputed embeddings: who made them, and where they are -----------------------------------------

BUILT_IN_ENCODERS = {"text": ("minilm", "clip"), "image": ("efficientnet_lite0", "clip")}
"""Names of the built-in encoders of captions and of images."""


class EncoderConfig(ConfigModel, affects="data"):
    """A frozen network that turns captions or pictures into vectors.

    >>> EncoderConfig(name="clip", architecture="ViT-B-32").weights is None
    True
    """

    name: str = required_field(
        "`minilm` (packaged; captions), `efficientnet_lite0` (packaged; pictures), `clip` (open_clip's tower of this "
        "side, with local `weights`), or a dotted path of your own. With an `encoder`: the model, as that calls it."
    )
    encoder: str | None = config_field(
        None,
        "What loads `name`, as in the options of `model: vectors` (docs/encoders.md): `open_clip`, `transformers`, "
        "`sentence_transformers`, `mteb`, or a dotted path. None: the networks above.",
        legacy_default=None,
        min_length=1,
    )
    revision: str | None = config_field(
        None,
        "`encoder`: revision of a model on the hub.",
        legacy_default=None,
        min_length=1,
        read_with={"encoder": GIVEN},
    )
    precision: Literal["fp32", "fp16", "bf16"] = config_field(
        "fp32", "`encoder`: numbers that the model computes with.", legacy_default="fp32", read_with={"encoder": GIVEN}
    )
    encoder_options: dict[str, Any] = config_field(
        {}, "`encoder`: its further options.", legacy_default={}, read_with={"encoder": GIVEN}
    )
    architecture: str = config_field(
        "ViT-B-32-quickgelu",
        "`clip`: open_clip's model name, or a JSON file in its format.",
        read_with={"name": ["clip"]},
    )
    weights: str | None = config_field(
        None,
        "`clip`: local weights file.",
        read_with={"name": ["clip"]},
    )
    family: Literal["openai", "open_clip"] | None = config_field(
        None,
        "`clip`: origin of weights whose file does not show it, as in `backbone.family`.",
        read_with={"name": ["clip"]},
    )
    allow_torchscript: bool = config_field(
        False,
        "`clip`: allow a TorchScript archive. Only for files that you trust.",
        affects="nothing",
        read_with={"name": ["clip"]},
    )


class MadeFrom(ConfigModel, affects="data"):
    """Vectors that Rewind makes from another dataset of captioned clips or images."""

    dataset: str = required_field(
        "Name of a file in `config/datasets`; its split is kept, its reversed twins are left out.", pattern=NAME_PATTERN
    )
    text: EncoderConfig = required_field("Encoder of the captions.")
    image: EncoderConfig = required_field("Encoder of the images, or of the frames of clips, whose mean is used.")
    frames: int = config_field(8, "Number of frames of a clip that are encoded.", ge=1, le=512)
    size: int = config_field(224, "Side of the square that the image encoder sees, in pixels.", ge=16, le=1024)
    unit: bool = config_field(
        True,
        "Scale every vector to length 1. Otherwise geometry and the moment term of the loss also depend on lengths.",
    )
    dtype: Literal["float32", "float16"] = config_field("float32", "Number format in the file.")
    threads: int = config_field(1, "CPU threads of the encoding job.", ge=1, le=512, affects="nothing")

    @property
    def sides(self) -> dict[str, EncoderConfig]:
        """The encoders by side, ``text`` and ``image``."""
        return {"text": self.text, "image": self.image}

    def encoding(self, side: str) -> Encoding | None:
        """The model by name that makes the vectors of one side; None for a built-in network.

        >>> image = EncoderConfig(encoder="open_clip", name="RN50")
        >>> made_from = MadeFrom(dataset="shapes", text=EncoderConfig(name="minilm"), image=image)
        >>> made_from.encoding("text"), made_from.encoding("image").max_frames
        (None, 8)
        """
        encoder = self.sides[side]
        if encoder.encoder is None:
            return None
        same = {key: getattr(encoder, key) for key in ("encoder", "name", "revision", "precision", "encoder_options")}
        return Encoding(**same, max_frames=self.frames, sampling="uniform")


class EmbeddingsSource(ConfigModel, affects="data"):
    """Vectors of captions and images, in the format of Mamiglia's challenge, or made by Rewind.

    >>> EmbeddingsSource(format="embeddings", train="train.npz", captions="captions.txt").seed
    42
    """

    format: Literal["embeddings"] = required_field("Vectors in an npz, and which caption belongs to which image.")
    items: Literal["images", "videos"] = config_field(
        "images", "What the image vectors represent; affects only the words in tables."
    )
    train: str | None = config_field(
        None, "The npz with captions and images; none if the vectors are `made_from` a dataset."
    )
    captions: str | None = config_field(
        None, "captions.txt: `image,caption`, one line per caption vector, in their order."
    )
    splits: str | None = config_field(
        None,
        "CSV `image,split[,path]` with the split of every image and the path of its picture (relative to this "
        "dataset's results folder); none: a random split by image with `seed`.",
    )
    test: str | None = config_field(None, "npz of captions without images, for which a submission can be written.")
    made_from: MadeFrom | None = config_field(
        None, "Make the vectors from another dataset, instead of giving `train` and `captions`."
    )
    seed: int = config_field(
        42, "Seed of the split by image.", **SEED_BOUNDS, read_with={"splits": NOT_GIVEN, "made_from": NOT_GIVEN}
    )
    valid_share: float = config_field(
        0.1,
        "Share of images in the validation split.",
        gt=0,
        lt=1,
        read_with={"splits": NOT_GIVEN, "made_from": NOT_GIVEN},
    )
    test_share: float = config_field(
        0.1, "Share of images in the test split.", gt=0, lt=1, read_with={"splits": NOT_GIVEN, "made_from": NOT_GIVEN}
    )
    max_gb: float | None = config_field(
        None,
        "Refuse vectors that unpack to more gigabytes than this; none: more than the free memory.",
        gt=0,
        affects="nothing",
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


# ---- Source formats, normalisation of clips and images, and the dataset file itself --------------------------------


FORMATS_WITH_ANSWERS = ("cia", "mteb")
"""Formats in which a caption may have several right items."""
ItemKind = Literal["videos", "images"]
Split = Literal["train", "valid", "test"]


class SourceConfig(ConfigModel, affects="data"):
    """Keys of a source format."""

    def files(self) -> list[str]:
        """Annotation files of the user's own; none where the workflow makes them."""
        return []


class RTimeSource(SourceConfig):
    """Annotations in RTime's JSON format and a folder of clips.

    >>> RTimeSource(format="rtime", annotations={"test": "test.json"}, videos="clips").files()
    ['test.json']
    """

    format: Literal["rtime"] = required_field("RTime's JSON files.")
    annotations: dict[Split, str] = required_field("The JSON file of each split.")
    videos: str = required_field("Folder of source clips, named `<id>.<any video suffix>`.")
    reversed_videos: str | None = config_field(
        None,
        "Folder of existing reversed clips (`<id>_rev.*` or `<id>-reverse.*`); clips without one are reversed by "
        "Rewind.",
    )

    def files(self) -> list[str]:
        return [self.annotations[split] for split in ("train", "valid", "test") if split in self.annotations]


class ShapesSource(SourceConfig):
    """The built-in dataset: moving shapes, drawn at random and described in RTime's JSON format.

    >>> ShapesSource(format="shapes", clips={"test": 4}).paraphrases
    5
    """

    format: Literal["shapes"] = required_field("Generated clips.")
    seed: int = config_field(0, "Random seed of the drawing; another seed gives other clips.", **SEED_BOUNDS)
    clips: dict[Split, int] = config_field(
        {"train": 380, "valid": 60, "test": 120}, "Original clips in each split; each also has its reversed twin."
    )
    size: int = config_field(
        32, "Typical short side of a source clip, in pixels; some clips have odd sizes.", ge=16, le=512
    )
    paraphrases: int = config_field(5, "Captions per training clip and direction.", ge=1, le=10)


class TableSource(SourceConfig):
    """Any dataset, as one CSV file.

    >>> TableSource(format="table", table="clips.csv", videos="clips").files()
    ['clips.csv']
    """

    format: Literal["table"] = required_field(
        "A CSV `item_id,caption[,path][,split][,reverse_caption][,cluster_id]`, one row per caption. Without `path` a "
        "clip's file is named by its id, without `split` all are of the test split."
    )
    table: str = required_field("The CSV file.")
    videos: str = config_field("", "Folder that the table's paths are relative to; not needed with `clips: false`.")
    items: ItemKind = config_field("videos", "Whether the files are `videos` or `images`.")

    def files(self) -> list[str]:
        return [self.table]


class EmojiSource(SourceConfig):
    """Captioned animated clips from the npm packages `@lobehub/fluent-emoji-anim-*` and `emojibase-data`."""

    format: Literal["emoji"] = required_field("Animated emoji, fetched with npm.")
    packages: list[Literal[1, 2, 3, 4]] = config_field(
        [1, 2, 3, 4], "Which of the four packages to use; one package gives a small dataset."
    )
    folder: str | None = config_field(
        None, "Folder that already contains the unpacked packages; none: npm fetches them."
    )
    seed: int = config_field(0, "Seed of the split by subject.", **SEED_BOUNDS)
    test_share: float = config_field(0.5, "Share of subjects in the test split.", gt=0, lt=1)
    valid_share: float = config_field(0.1, "Share of subjects in the validation split.", gt=0, lt=1)

    @field_validator("packages")
    @classmethod
    def _once(cls, packages: list[int]) -> list[int]:
        return require_unique(packages)


class ImageSplitConfig(SourceConfig):
    """Keys of a random split by image."""

    items: ClassVar[ItemKind] = "images"
    seed: int = config_field(42, "Seed of the split by image.", **SEED_BOUNDS)
    train_share: float = config_field(0.7, "Share of images in the training split.", gt=0, lt=1)
    valid_share: float = config_field(
        0.15, "Share of images in the validation split; the test split has the rest.", gt=0, lt=1
    )


class PhotosSource(ImageSplitConfig):
    """Captioned images: one JSON list and a folder.

    >>> PhotosSource(format="photos", captions="captions.json", images="photos").items
    'images'
    """

    format: Literal["photos"] = required_field("A JSON list `[{file_name, caption}]`, one entry per caption.")
    captions: str = required_field("The JSON file.")
    images: str = required_field("Folder that file names are relative to.")

    def files(self) -> list[str]:
        return [self.captions]


class Flickr8kSource(ImageSplitConfig):
    """Flickr8k, or anything in its format: one text file of captions and a folder of images."""

    format: Literal["flickr8k"] = required_field("Rows `image_path<TAB>caption`, or the original CSV `image,caption`.")
    captions: str = required_field(
        "The text file: `captions.tsv`, or the original `captions.txt` or `Flickr8k.token.txt`."
    )
    images: str = required_field("Folder that image paths are relative to.")
    split_file: str | None = config_field(
        None,
        "Karpathy's `dataset_flickr8k.json`, whose split is used; none: a random split with `seed` and the shares.",
    )
    max_without_split: float = config_field(
        0.02,
        "Largest tolerated share of captioned images that are missing from `split_file` (of Flickr8k's 8,091 it "
        "lists 8,000); they are left out and counted in `captions/report.json`.",
        ge=0,
        le=1,
    )
    captions_per_image: int = config_field(
        5,
        "Number of captions that an image should have; images with fewer or more are used, and counted in the report.",
        ge=1,
    )

    def files(self) -> list[str]:
        return [self.captions] + ([self.split_file] if self.split_file else [])


class StampsSource(ImageSplitConfig):
    """Captioned images from Debian's package `tuxpaint-stamps-default`."""

    format: Literal["stamps"] = required_field(
        "Stamps of Tux Paint, fetched with apt-get without installing the package."
    )
    folder: str | None = config_field(
        None, "Folder that already contains the package's .deb file or its unpacked tree; none: apt-get fetches it."
    )


class InternvidSource(SourceConfig):
    """Captioned clips as InternVid lists them."""

    format: Literal["internvid"] = required_field(
        "A CSV with the columns `YoutubeID` and `Caption`, one row per caption."
    )
    captions: str = required_field("The CSV file.")
    videos: str = required_field("Folder of the clips, named `<YoutubeID>.mp4`.")
    seed: int = config_field(
        42, "Seed of the split of rows into 80% training, 10% validation and 10% test.", **SEED_BOUNDS
    )

    def files(self) -> list[str]:
        return [self.captions]


CiaSourceName = Literal["cia-ssv2", "cia-epic", "cia-charades"]
CIA_SOURCES: tuple[str, ...] = get_args(CiaSourceName)
"""Sources of chiral actions, as the authors' files call them."""


class CiaSource(SourceConfig):
    """Chiral actions (CiA): pairs of opposite actions, each with many clips, as their authors list them.

    >>> CiaSource(format="cia", inputs="inputs-val.csv", labels="labels-val.json", videos="clips").files()
    ['inputs-val.csv', 'labels-val.json']
    """

    format: Literal["cia"] = required_field("The authors' files of inputs and labels.")
    inputs: str = required_field(
        "The CSV `nuanced_retrieval_inputs-{val,test}.csv`, with the columns `id,value,nuance,source,modality`; rows "
        "of other nuances are not read."
    )
    labels: str = required_field("The JSON file `nuanced_retrieval_labels-{val,test}.json`: id → list of matching ids.")
    videos: str = required_field("Folder of the clips, named `<value>.<any video suffix>`.")
    sources: list[CiaSourceName] | None = config_field(
        None,
        "Which sources are used; none: all that the file has. The authors publish figures of each source separately.",
        min_length=1,
    )

    @field_validator("sources")
    @classmethod
    def _once(cls, sources: list[CiaSourceName] | None) -> list[CiaSourceName] | None:
        return sources and require_unique(sources)

    def files(self) -> list[str]:
        return [self.inputs, self.labels]


class NegationSource(SourceConfig):
    """Images or clips with captions that say what is not there, as TARA's authors list them.

    >>> keys = {"inputs": "inputs-test.csv", "labels": "labels-test.json", "videos": "photos"}
    >>> NegationSource(format="negation", part="neg-coco", **keys).items
    'images'
    """

    format: Literal["negation"] = required_field("The files of inputs and labels that `cia` reads, too.")
    inputs: str = required_field("The CSV `nuanced_retrieval_inputs-{val,test}.csv`; other parts are not read.")
    labels: str = required_field("The JSON file `nuanced_retrieval_labels-{val,test}.json`: id → list of matching ids.")
    videos: str = required_field("Folder of the clips or images, named `<value>.<any suffix>`.")
    part: Literal["neg-coco", "neg-msrvtt"] = required_field("Which one: images of COCO, or clips of MSR-VTT.")

    @property
    def items(self) -> ItemKind:
        return "images" if self.part == "neg-coco" else "videos"

    def files(self) -> list[str]:
        return [self.inputs, self.labels]


class ComposedSource(SourceConfig):
    """Queries of a clip and a text that says what is to be different in it, as TARA's authors list them.

    >>> keys = {"inputs": "inputs-test.csv", "labels": "labels-test.json", "videos": "clips"}
    >>> ComposedSource(format="composed", **keys).part
    'covr-webvid'
    """

    format: Literal["composed"] = required_field("The files of inputs and labels that `cia` reads, too.")
    inputs: str = required_field("The CSV `nuanced_retrieval_inputs-{val,test}.csv`; other parts are not read.")
    labels: str = required_field("The JSON file `nuanced_retrieval_labels-{val,test}.json`: id → list of matching ids.")
    videos: str = required_field("Folder of the clips, those of queries too, named `<value>.<any video suffix>`.")
    part: str = config_field("covr-webvid", "The `source` of its rows.", min_length=1)

    def files(self) -> list[str]:
        return [self.inputs, self.labels]


class FoilsSource(SourceConfig):
    """Clips with true captions and foils, as benchmarks of caption matching list them.

    >>> FoilsSource(format="foils", benchmark="vinoground", file="vinoground.csv", videos="clips").files()
    ['vinoground.csv']
    """

    format: Literal["foils"] = required_field(
        "A benchmark's own file of true captions and foils; all clips are of the test split."
    )
    benchmark: Literal["negbench", "velociti", "vinoground", "vilma", "table"] = required_field(
        "The benchmark that the file is from. `negbench`, `vinoground`: their CSV; `velociti`: its rows as CSV, JSON "
        "list or Parquet; `vilma`: one of its JSON files; `table`: a CSV `video,caption,foil[,kind][,cluster_id]` of "
        "your own, one row per foil."
    )
    file: str = required_field("The file.")
    videos: str = config_field(
        "",
        "Folder of the clips: with the file names of `negbench` and `table`, `<video_id>` (VELOCITI), `<i>_pos` and "
        "`<i>_neg` (Vinoground), `<id of the entry>` (ViLMA, whose entries are parts of videos). Not needed with "
        "`clips: false`.",
    )

    def files(self) -> list[str]:
        return [self.file]


class FieldSource(SourceConfig):
    """Keys of a data set of the field, whose files are found under the names with which they are passed round."""

    folder: str = required_field("Folder of the annotation files, under the names that docs/data-sets.md lists.")
    videos: str = config_field("", "Folder of the clips; not needed with `clips: false`.")
    counts: Literal["published", "any"] = config_field(
        "published",
        "`published`: files with other numbers of clips or captions than the published ones are refused. `any`: they "
        "are used, and tables say so.",
    )

    def file_names(self) -> list[str]:
        """Names of the annotation files in the folder."""
        raise NotImplementedError

    def files(self) -> list[str]:
        return [str(PurePath(self.folder) / name) for name in self.file_names()]


class MsrvttSource(FieldSource):
    """MSR-VTT, in the files that CLIP4Clip passes on.

    >>> MsrvttSource(format="msrvtt", folder="msrvtt", videos="clips", train="7k").file_names()
    ['MSRVTT_data.json', 'MSRVTT_train.7k.csv', 'MSRVTT_JSFUSION_test.csv']
    """

    format: Literal["msrvtt"] = required_field("MSR-VTT: one JSON file, and CSV files of training and test clips.")
    train: Literal["9k", "7k", "full"] = config_field(
        "9k",
        "Training clips: those of `MSRVTT_train.9k.csv` or `MSRVTT_train.7k.csv`, or (`full`) of the official split. "
        "The 497 official validation clips, which are in both lists, are the validation split and not trained on.",
    )
    test: Literal["1k-A", "full"] = config_field(
        "1k-A",
        "Test clips: `1k-A` (`MSRVTT_JSFUSION_test.csv`, 1,000 clips with one caption each) or `full` (the official "
        "test split, 2,990 clips with 20 captions each), of which 1,990 clips are in the list `9k`.",
    )

    @model_validator(mode="after")
    def _no_test_clip_in_training(self) -> MsrvttSource:
        if self.train == "9k" and self.test == "full":
            raise ValueError("source.train: the list 9k has 1,990 of the clips of test: full; use 7k or full")
        return self

    def file_names(self) -> list[str]:
        lists = [f"MSRVTT_train.{self.train}.csv"] if self.train != "full" else []
        lists += ["MSRVTT_JSFUSION_test.csv"] if self.test == "1k-A" else []
        return ["MSRVTT_data.json", *lists]


class MsvdSource(FieldSource):
    """MSVD: a pickle of captions, which is read without running it, and a list of clips for each split.

    >>> MsvdSource(format="msvd", folder="msvd", videos="clips").file_names()
    ['raw-captions.pkl', 'train_list.txt', 'val_list.txt', 'test_list.txt']
    """

    format: Literal["msvd"] = required_field("MSVD: `raw-captions.pkl` and lists of clips.")

    def file_names(self) -> list[str]:
        return ["raw-captions.pkl", *(f"{split}_list.txt" for split in ("train", "val", "test"))]


class DidemoSource(FieldSource):
    """DiDeMo as paragraph retrieval: all descriptions of a clip are one caption.

    >>> DidemoSource(format="didemo", folder="didemo", videos="clips").file_names()[:2]
    ['train_data.json', 'train_list.txt']
    """

    format: Literal["didemo"] = required_field("DiDeMo: descriptions as JSON, and lists of clips.")

    def file_names(self) -> list[str]:
        return [f"{split}_{kind}" for split in ("train", "val", "test") for kind in ("data.json", "list.txt")]


VALID_CLIPS = 500
"""Clips that are held out of the training split of data sets without a validation split of their own."""


class ActivitynetSource(FieldSource):
    """ActivityNet Captions as paragraph retrieval: all sentences of a video are one caption.

    >>> ActivitynetSource(format="activitynet", folder="anet", videos="clips").file_names()
    ['train.json', 'train_ids.json', 'val_1.json', 'val_ids.json']
    """

    format: Literal["activitynet"] = required_field("ActivityNet Captions: sentences as JSON, and lists of ids.")
    prefixed_files: bool = config_field(
        False, "Whether the files of clips are named `v_<id>`, as in the official download, and not `<id>`."
    )
    valid_clips: int = config_field(
        VALID_CLIPS,
        "Training clips that are held out for validation, always the same ones: the test split is `val_1`, and there "
        "is no other.",
        ge=1,
    )

    def file_names(self) -> list[str]:
        return ["train.json", "train_ids.json", "val_1.json", "val_ids.json"]


class LsmdcSource(FieldSource):
    """LSMDC 2016: one table of clips and sentences for each split.

    >>> LsmdcSource(format="lsmdc", folder="lsmdc", videos="clips").file_names()[0]
    'LSMDC16_annos_training.csv'
    """

    format: Literal["lsmdc"] = required_field("LSMDC: rows of six cells with tabs between them, without a header.")
    cluster: Literal["clip", "film"] = config_field(
        "clip",
        "What statistics take for independent: clips, as in the field, or films. Tests need 20 clusters, so with "
        "`film` there may be intervals and no tests.",
    )

    def file_names(self) -> list[str]:
        # The last name is misspelt by those who publish it.
        return ["LSMDC16_annos_training.csv", "LSMDC16_annos_val.csv", "LSMDC16_challenge_1000_publictect.csv"]


class VatexSource(FieldSource):
    """VATEX in the split of HGR (Chen et al., 2020): 25,991, 1,500 and 1,500 clips.

    >>> VatexSource(format="vatex", folder="vatex", videos="clips").file_names()
    ['ref_captions.json', 'trn_names.npy', 'val_names.npy', 'tst_names.npy']
    """

    format: Literal["vatex"] = required_field("VATEX: English captions as JSON, and arrays of names.")
    captions: list[str] = config_field(
        ["ref_captions.json"],
        "JSON files in `folder` with the captions: HGR's (an object, name → captions), or VATEX's own (a list of "
        "objects with `videoID` and `enCap`), such as `vatex_training_v1.0.json`.",
        min_length=1,
    )

    @field_validator("captions")
    @classmethod
    def _once(cls, captions: list[str]) -> list[str]:
        return require_unique(captions)

    def file_names(self) -> list[str]:
        return [*self.captions, *(f"{split}_names.npy" for split in ("trn", "val", "tst"))]


class Youcook2Source(FieldSource):
    """YouCook2: segments of cooking videos, one sentence each, as clips that are already cut.

    >>> Youcook2Source(format="youcook2", folder="youcook2", videos="clips").file_names()
    ['youcookii_annotations_trainval.json', 'validation_youcook.csv']
    """

    format: Literal["youcook2"] = required_field(
        "YouCook2: the annotations as JSON; a clip is a segment, whose file is named `<video>_<id of the segment>`."
    )
    test: Literal["mil-nce", "all"] = config_field(
        "mil-nce",
        "Test clips: the 3,350 segments of MIL-NCE's `validation_youcook.csv`, on which results are published, or "
        "`all` of the subset `validation`.",
    )
    valid_clips: int = config_field(
        VALID_CLIPS,
        "Training segments that are held out for validation, always the same ones: whole videos, until that "
        "number is reached. The test split is the subset `validation`, and captions of the subset `testing` are not "
        "published.",
        ge=1,
    )

    def file_names(self) -> list[str]:
        return ["youcookii_annotations_trainval.json", *(["validation_youcook.csv"] if self.test == "mil-nce" else [])]


class MtebSource(SourceConfig):
    """A retrieval task of MTEB or MVEB that matches texts with videos or images.

    >>> MtebSource(format="mteb", task="MSRVTTT2V").items
    'videos'
    """

    format: Literal["mteb"] = required_field("A task of MTEB, or a folder in its layout; needs `rewind-bench[mteb]`.")
    task: str | None = config_field(
        None,
        "Name of the task, for example `MSRVTTT2V` or `Flickr30kT2IRetrieval`, or the dotted path of a task of your "
        "own; the direction in a name plays no part. None: `folder` has MTEB's layout: the configurations `corpus`, "
        "`queries` and `qrels`.",
        min_length=1,
    )
    folder: str | None = config_field(
        None,
        "A copy of the task's data set: `hf download --repo-type dataset <name> --local-dir <folder>`. None: the cache "
        "of the package `datasets`, which fetches what is not in it.",
        min_length=1,
    )
    items: ItemKind = config_field("videos", "Whether the task has `videos` or `images`.")
    split: str | None = config_field(
        None, "The task's split, if it is evaluated on several; here it is the test split."
    )
    subset: str | None = config_field(None, "The task's subset, for example a language, if it has several.")

    @model_validator(mode="after")
    def _named(self) -> MtebSource:
        if not (self.task or self.folder):
            raise ValueError("source.task: this key is missing; name a task, or a folder in MTEB's layout")
        return self

    def files(self) -> list[str]:
        """All files of the copy; what `hf download` notes in hidden folders is left out."""
        if self.folder is None:
            return []
        root = Path(self.folder)
        found = (path for path in root.rglob("*") if path.is_file() and not is_hidden(path.relative_to(root)))
        return sorted(map(str, found)) or [str(root / "README.md")]


class ModuleSource(SourceConfig):
    """A format of your own: any importable module with `read(dataset, sources) -> Annotations`."""

    format: str = required_field(
        "Dotted path of the module, for example `mylab.rewind_dataset`.", pattern=r"^\w+(\.\w+)+$"
    )
    items: ItemKind = config_field("videos", "Whether the items are `videos` or `images`.")
    options: dict[str, Any] = config_field({}, "Options that the module reads.")


BuiltInSource = (
    RTimeSource
    | ShapesSource
    | TableSource
    | EmojiSource
    | PhotosSource
    | Flickr8kSource
    | StampsSource
    | InternvidSource
    | CiaSource
    | NegationSource
    | ComposedSource
    | FoilsSource
    | MsrvttSource
    | MsvdSource
    | DidemoSource
    | ActivitynetSource
    | LsmdcSource
    | VatexSource
    | Youcook2Source
    | MtebSource
    | EmbeddingsSource
)
BUILT_IN_SOURCES: tuple[type[ConfigModel], ...] = get_args(BuiltInSource)
# Any for the type checker: a reader is called only for its own format, so it knows the class without checking it.
Source: Any = Annotated[
    Annotated[BuiltInSource, Field(discriminator="format")] | ModuleSource, Field(union_mode="left_to_right")
]


class Video(ConfigModel, affects="data"):
    """How source clips are normalised; what is transparent becomes white.

    >>> Video(fps=2).short_side
    224
    """

    fps: float = config_field(3.0, "Frames per second of the normalised clip.", ge=0.01, le=60)
    short_side: int = config_field(
        224, "Short side in pixels; the long side keeps the aspect ratio, rounded to an even number.", ge=16, le=1080
    )
    qp: int = config_field(
        20,
        "H.264 constant quantiser, 0 (lossless) to 51. Every frame is coded as an intra frame with this quantiser, "
        "so a reversed file contains the frames of its original bit for bit, and any frame can be read without its "
        "neighbours.",
        ge=0,
        le=51,
    )
    max_seconds: float = config_field(
        600.0, "Longer clips are refused, because reversing holds all frames in memory.", ge=0.1, le=86_400
    )
    # Of progressive sources both do the same, so earlier results count; clips are made again with other code anyway.
    deinterlace: Literal["auto", "never"] = config_field(
        "auto",
        "Interlaced sources, whose fields would show the direction of time. `auto`: they are recognised by their "
        "pictures, whatever the file says, and deinterlaced, and film that was telecined (3:2 pulldown) gets its own "
        "pictures back; `never`: they are left as they are. The report says what was done.",
        legacy_default="auto",
    )
    launder: bool = config_field(
        False,
        "Show each frame as a mean over the time around it, three intervals long, in which traces of key frames and "
        "copied noise, by which the direction can be told, even out, and without small drifts of brightness "
        "(docs/artefacts.md). It blurs what moves, and clips have two or three frames less.",
        legacy_default=False,
    )
    drop_damaged_end: int = config_field(
        0,
        "Most frames, counted as in the source, that a source may lose at its end if they cannot be decoded; the "
        "report says how many were dropped. Damage elsewhere, or more of it, is refused; 0: any damage is.",
        legacy_default=0,
        ge=0,
        le=100_000,
    )
    shards: int = config_field(1, "Number of video jobs; use a few hundred for 20,000 clips.", ge=1, le=5000)
    workers: int = config_field(2, "Parallel ffmpeg processes in one video job.", ge=1, le=256, affects="nothing")


class Image(ConfigModel, affects="data"):
    """How source images are normalised: turned upright, white where they are transparent, as RGB.

    >>> Image(format="jpeg").short_side
    256
    """

    short_side: int = config_field(
        256,
        "Largest short side in pixels; larger images are scaled down, smaller ones keep their size.",
        ge=16,
        le=4096,
    )
    format: Literal["png", "jpeg"] = config_field(
        "png", "`png`: lossless. `jpeg`: quality 95 with full colour resolution, a third of the size or less."
    )
    shards: int = config_field(1, "Number of image jobs; use a few hundred for a million images.", ge=1, le=5000)
    workers: int = config_field(2, "Parallel threads in one image job.", ge=1, le=256, affects="nothing")


class Dataset(ConfigModel, affects="data"):
    """One dataset file.

    >>> source = {"format": "table", "table": "clips.csv", "videos": "clips"}
    >>> dataset = Dataset(name="mine", source=source)
    >>> dataset.items, dataset.made_here, dataset.media.fps
    ('videos', False, 3.0)
    """

    name: str = required_field("The file's name without `.yaml`; filled in by the reader.", pattern=NAME_PATTERN)
    title: LabelText = config_field(
        "", "Name used in tables, for example `RTime`; the file's name if empty.", affects="report"
    )
    source: Source = required_field("Where the raw files are; the keys depend on the format.")
    reverse: bool = config_field(
        True,
        "Make a time-reversed twin of every clip that has a reverse caption; in data sets of the field, which have "
        "none (docs/data-sets.md), of every validation and test clip.",
    )
    clips: bool = config_field(
        True,
        "Set to false if the clips or images are not available: only methods with precomputed vectors or "
        "scores (docs/bring-your-model.md), `bow` and `chance` can be evaluated, and pictures show no frames.",
        legacy_default=True,
    )
    only: str | None = config_field(
        None,
        "Text file of item ids, one per line: only these originals are used, with their twins and captions. For "
        "trying a study on a part of its data.",
    )
    allow_overlap: bool = config_field(
        False,
        "Set to true to use a data set of which clips or images are in two splits (the same file, the same content, or "
        "one `cluster_id`); tables then say so. Otherwise this is refused, because a method could learn what it is "
        "tested on. One id can never be in two splits.",
        legacy_default=False,
    )
    groups: str = config_field(
        "auto",
        "Groups of test captions, for a table and a picture of each group's results. `auto`: what the annotations name "
        "(a column `group` of a CSV; `group`, `category` or `verb` of RTime's entries; of shapes the kind of motion); "
        "`none`: no such tables; `time_sensitivity`: thirds of the clips by how much they change when reversed; or a "
        "CSV file with the columns `group` and `caption_id` or `item_id`.",
        legacy_default="auto",
        pattern=r"^(auto|none|time_sensitivity|.+\.csv)$",
        affects="statistics",
    )
    answers: str | None = config_field(
        None,
        "Right answers of captions that have several right clips (`evaluation.probes: [answers]`): `same_text`, every "
        "clip with a caption of the same text; FIRE's JSON; or a CSV with the columns `caption_id` and `item_id`, a "
        "row per right pair, `setting` where there are several, and `right` where rows also name wrong pairs (0), or "
        "right ones by grades (1 and more). None: those of the format, if it has some.",
        legacy_default=None,
        pattern=r"^(same_text|.+\.(csv|json))$",
        affects="scores",
    )
    answers_gallery: Literal["all", "judged"] = config_field(
        "all",
        "What a caption of `answers` searches: `all` clips, so that a pair with `right: 0` is as wrong as one that is "
        "not listed; or the `judged` ones, those that its own rows name, of which some must then be wrong.",
        legacy_default="all",
        affects="scores",
    )
    foils: str | None = config_field(
        None,
        "CSV of captions that are not true of a clip (`evaluation.probes: [foils]`): the columns `caption_id` (of the "
        "true caption) and `foil`, a row per foil, and `kind`. None: those of the format, if it has some.",
        legacy_default=None,
        pattern=r".+\.csv$",
        affects="scores",
    )
    max_missing: float = config_field(
        0.0,
        "Largest tolerated share of missing or unreadable clips, 0 to 1; above it the videos stage fails. Finished "
        "data are not counted again.",
        ge=0, le=1, affects="check")  # fmt: skip
    video: Video = config_field(Video(), "How source clips are normalised.")
    image: Image = config_field(Image(), "How source images are normalised, if the dataset has images.")
    licence: str = config_field("", "Licence of the clips and captions, for the report.", affects="report")
    how_to_get: str = config_field(
        "", "Printed when files are missing: where to get them and where to put them.", affects="nothing"
    )

    @model_validator(mode="after")
    def _shares(self, info: ValidationInfo) -> Dataset:
        if (info.context or {}).get(DRAFT_CONTEXT):
            return self
        faults = []  # all at once, a line each: rewind.config.load splits them
        if isinstance(self.source, EmojiSource) and self.source.test_share + self.source.valid_share >= 1:
            faults += ["source.test_share + source.valid_share must leave something to train on (sum below 1)"]
        if isinstance(self.source, ImageSplitConfig) and self.source.train_share + self.source.valid_share >= 1:
            faults += ["source.train_share + source.valid_share must leave something to test on (sum below 1)"]
        if isinstance(self.source, ShapesSource) and (odd := [s for s, n in self.source.clips.items() if n < 0]):
            faults += [f"source.clips.{odd[0]}: a number of clips is needed, 0 or more"]
        if isinstance(self.source, TableSource | FoilsSource | FieldSource) and self.clips and not self.source.videos:
            faults += ["source.videos: this key is missing; name the folder, or set clips: false if there are none"]
        if self.groups == "time_sensitivity" and (self.why_no_twins or not self.clips):
            reason = self.why_no_twins or "sets clips: false"
            faults += [f"groups: time_sensitivity is of clips and their reversed twins, but this data set {reason}"]
        if self.answers_gallery == "judged" and self.answers in (None, "same_text"):
            faults += ["answers_gallery: judged is for the rows of answers, and there are none; name a CSV there"]
        if faults:
            raise ValueError("\n".join(faults))
        return self

    @property
    def made_here(self) -> bool:
        """Whether the workflow makes or fetches the source files itself."""
        return self.source.format in ("shapes", "emoji", "stamps", "mteb", "embeddings")

    @property
    def vectors(self) -> bool:
        """Whether the dataset holds vectors, so that there is nothing to normalise and no tower to run."""
        return isinstance(self.source, EmbeddingsSource)

    @property
    def items(self) -> ItemKind:
        """What the dataset's items are."""
        return getattr(self.source, "items", "videos")

    @property
    def composed(self) -> bool:
        """Whether a query shows a clip besides its text."""
        return isinstance(self.source, ComposedSource)

    @property
    def media(self) -> Video | Image:
        """How the source files are normalised."""
        return self.image if self.items == "images" else self.video

    @property
    def why_no_twins(self) -> str:
        """Why it can have no time-reversed twins, as the end of a sentence; empty where it may have some."""
        if self.vectors:
            return "holds vectors"
        if self.items == "images":
            return "holds images"
        undescribed = EmojiSource | InternvidSource | CiaSource | NegationSource | ComposedSource | FoilsSource
        if isinstance(self.source, undescribed):
            return f"(format: {self.source.format}) has no reverse captions"
        return "" if self.reverse else "sets reverse: false"
