"""Dataset files (``config/datasets/*.yaml``): where raw files are and how they become clips and captions."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from rewind.study.embeddings import EmbeddingsSource
from rewind.study.keys import DRAFT, NAME, SEEDS, Keys, key, once, required


class SourceKeys(Keys):
    """Keys of a source format."""

    def files(self) -> list[str]:
        """Annotation files that the user brings."""
        return []


class RTimeSource(SourceKeys):
    """Annotations in RTime's JSON format and a folder of clips."""

    format: Literal["rtime"] = required("RTime's JSON files.")
    annotations: dict[Literal["train", "valid", "test"], str] = required("The JSON file of each split.")
    videos: str = required("Folder of source clips, named `<id>.<any video suffix>`.")
    reversed_videos: str | None = key(
        None,
        "Folder of existing reversed clips (`<id>_rev.*` or `<id>-reverse.*`); clips without one are reversed by "
        "Rewind.",
    )

    def files(self) -> list[str]:
        return [self.annotations[split] for split in ("train", "valid", "test") if split in self.annotations]


class ShapesSource(SourceKeys):
    """The built-in dataset: moving shapes, drawn at random and described in RTime's JSON format."""

    format: Literal["shapes"] = required("Generated clips.")
    seed: int = key(0, "Random seed of the drawing; another seed gives other clips.", **SEEDS)
    clips: dict[Literal["train", "valid", "test"], int] = key(
        {"train": 380, "valid": 60, "test": 120}, "Original clips in each split; each also has its reversed twin."
    )
    size: int = key(32, "Typical short side of a source clip, in pixels; some clips have odd sizes.", ge=16, le=512)
    paraphrases: int = key(5, "Captions per training clip and direction.", ge=1, le=10)


Items = Literal["videos", "images"]


class TableSource(SourceKeys):
    """Any dataset, as one CSV file."""

    format: Literal["table"] = required(
        "A CSV `item_id,caption[,path][,split][,reverse_caption][,cluster_id]`, one row per caption. Without `path` a "
        "clip's file is named by its id, without `split` all are of the test split."
    )
    table: str = required("The CSV file.")
    videos: str = key("", "Folder that the table's paths are relative to; not needed with `clips: false`.")
    items: Items = key("videos", "Whether the files are `videos` or `images`.")

    def files(self) -> list[str]:
        return [self.table]


class EmojiSource(SourceKeys):
    """Captioned animated clips from the npm packages `@lobehub/fluent-emoji-anim-*` and `emojibase-data`."""

    format: Literal["emoji"] = required("Animated emoji, fetched with npm.")
    packages: list[Literal[1, 2, 3, 4]] = key(
        [1, 2, 3, 4], "Which of the four packages to use; one package gives a small dataset."
    )
    folder: str | None = key(None, "Folder that already contains the unpacked packages; none: npm fetches them.")
    seed: int = key(0, "Seed of the split by subject.", **SEEDS)
    test_share: float = key(0.5, "Share of subjects in the test split.", gt=0, lt=1)
    valid_share: float = key(0.1, "Share of subjects in the validation split.", gt=0, lt=1)

    @field_validator("packages")
    @classmethod
    def _once(cls, packages: list[int]) -> list[int]:
        return once(packages)


class ImageSplit(SourceKeys):
    """Keys of a random split by image."""

    items: ClassVar[Items] = "images"
    seed: int = key(42, "Seed of the split by image.", **SEEDS)
    train_share: float = key(0.7, "Share of images in the training split.", gt=0, lt=1)
    valid_share: float = key(0.15, "Share of images in the validation split; the test split has the rest.", gt=0, lt=1)


class PhotosSource(ImageSplit):
    """Captioned images: one JSON list and a folder."""

    format: Literal["photos"] = required("A JSON list `[{file_name, caption}]`, one entry per caption.")
    captions: str = required("The JSON file.")
    images: str = required("Folder that file names are relative to.")

    def files(self) -> list[str]:
        return [self.captions]


class Flickr8kSource(ImageSplit):
    """Flickr8k, or anything in its format: one text file of captions and a folder of images."""

    format: Literal["flickr8k"] = required("Rows `image_path<TAB>caption`, or the original CSV `image,caption`.")
    captions: str = required("The text file: `captions.tsv`, or the original `captions.txt` or `Flickr8k.token.txt`.")
    images: str = required("Folder that image paths are relative to.")
    split_file: str | None = key(
        None,
        "Karpathy's `dataset_flickr8k.json`, whose split is used; none: a random split with `seed` and the shares.",
    )
    max_without_split: float = key(
        0.02,
        "Largest tolerated share of captioned images that are missing from `split_file` (of Flickr8k's 8,091 it "
        "lists 8,000); they are left out and counted in `captions/report.json`.",
        ge=0,
        le=1,
    )
    captions_per_image: int = key(
        5,
        "Number of captions that an image should have; images with fewer or more are used, and counted in the report.",
        ge=1,
    )

    def files(self) -> list[str]:
        return [self.captions] + ([self.split_file] if self.split_file else [])


class StampsSource(ImageSplit):
    """Captioned images from Debian's package `tuxpaint-stamps-default`."""

    format: Literal["stamps"] = required("Stamps of Tux Paint, fetched with apt-get without installing the package.")
    folder: str | None = key(
        None, "Folder that already contains the package's .deb file or its unpacked tree; none: apt-get fetches it."
    )


class InternvidSource(SourceKeys):
    """Captioned clips as InternVid lists them."""

    format: Literal["internvid"] = required("A CSV with the columns `YoutubeID` and `Caption`, one row per caption.")
    captions: str = required("The CSV file.")
    videos: str = required("Folder of the clips, named `<YoutubeID>.mp4`.")
    seed: int = key(42, "Seed of the split of rows into 80% training, 10% validation and 10% test.", **SEEDS)

    def files(self) -> list[str]:
        return [self.captions]


class ModuleSource(SourceKeys):
    """A format of your own: any importable module with `read(dataset, sources) -> Annotations`."""

    format: str = required("Dotted path of the module, for example `mylab.rewind_dataset`.", pattern=r"^\w+(\.\w+)+$")
    items: Items = key("videos", "Whether the items are `videos` or `images`.")
    options: dict[str, Any] = key({}, "Options that the module reads.")


BUILT_IN = (
    RTimeSource,
    ShapesSource,
    TableSource,
    EmojiSource,
    PhotosSource,
    Flickr8kSource,
    StampsSource,
    InternvidSource,
    EmbeddingsSource,
)
BuiltIn = Annotated[
    RTimeSource
    | ShapesSource
    | TableSource
    | EmojiSource
    | PhotosSource
    | Flickr8kSource
    | StampsSource
    | InternvidSource
    | EmbeddingsSource,
    Field(discriminator="format"),
]
# Not checked by type: a reader is called for its own format alone, so it knows the class without asking.
Source: Any = Annotated[BuiltIn | ModuleSource, Field(union_mode="left_to_right")]


class Video(Keys):
    """How source clips are normalised; what is transparent becomes white."""

    fps: float = key(3.0, "Frames per second of the normalised clip.", ge=0.01, le=60)
    short_side: int = key(
        224, "Short side in pixels; the long side keeps the aspect ratio, rounded to an even number.", ge=16, le=1080
    )
    qp: int = key(
        20,
        "H.264 constant quantiser, 0 (lossless) to 51. Every frame is coded as an intra frame with this quantiser, "
        "so a reversed file contains the frames of its original bit for bit, and any frame can be read without its "
        "neighbours.",
        ge=0,
        le=51,
    )
    max_seconds: float = key(
        600.0, "Longer clips are refused, because reversing holds all frames in memory.", ge=0.1, le=86_400
    )
    shards: int = key(1, "Number of video jobs; use a few hundred for 20,000 clips.", ge=1, le=5000)
    workers: int = key(2, "Parallel ffmpeg processes in one video job.", ge=1, le=256)


class Image(Keys):
    """How source images are normalised: turned upright, white where they are transparent, as RGB."""

    short_side: int = key(
        256,
        "Largest short side in pixels; larger images are scaled down, smaller ones keep their size.",
        ge=16,
        le=4096,
    )
    format: Literal["png", "jpeg"] = key(
        "png", "`png`: lossless. `jpeg`: quality 95 with full colour resolution, a third of the size or less."
    )
    shards: int = key(1, "Number of image jobs; use a few hundred for a million images.", ge=1, le=5000)
    workers: int = key(2, "Parallel threads in one image job.", ge=1, le=256)


class Dataset(Keys):
    """One dataset file."""

    name: str = required("The file's name without `.yaml`; filled in by the reader.", pattern=NAME)
    title: str = key("", "Name used in tables, for example `RTime`; the file's name if empty.")
    source: Source = required("Where the raw files are; the keys depend on the format.")
    reverse: bool = key(True, "Make a time-reversed twin of every clip that has a reverse caption.")
    clips: bool = key(
        True,
        "Set to false if the clips or images are not here: then only methods that bring vectors or scores "
        "(docs/bring-your-model.md), `bow` and `chance` can be evaluated, and pictures show no frames.",
        before=True,
    )
    only: str | None = key(
        None,
        "Text file of item ids, one per line: only these originals are used, with their twins and captions. For "
        "trying a study on a part of its data.",
    )
    allow_overlap: bool = key(
        False,
        "Set to true to use a data set of which clips or images lie in two splits (the same file, the same content, or "
        "one `cluster_id`); tables then say so. Otherwise this is refused, because a method could learn what it is "
        "tested on. One id can never be in two splits.",
        before=False,
    )
    groups: str = key(
        "auto",
        "Groups of test captions, for a table and a picture of each group's results. `auto`: what the annotations name "
        "(a column `group` of a CSV; `group`, `category` or `verb` of RTime's entries; of shapes the kind of motion); "
        "`none`: no such tables; or a CSV file with the columns `group` and `caption_id` or `item_id`.",
        before="auto",
        pattern=r"^(auto|none|.+\.csv)$",
    )
    max_missing: float = key(
        0.0, "Largest tolerated share of missing or unreadable clips, 0 to 1; above it the videos stage fails.",
        ge=0, le=1,
    )  # fmt: skip
    video: Video = key(Video(), "How source clips are normalised.")
    image: Image = key(Image(), "How source images are normalised, if the dataset has images.")
    licence: str = key("", "Licence of the clips and captions, for the report.")
    how_to_get: str = key("", "Printed when files are missing: where to get them and where to put them.")

    @model_validator(mode="after")
    def _shares(self, info: ValidationInfo) -> Dataset:
        if (info.context or {}).get(DRAFT):
            return self
        found = []
        if isinstance(self.source, EmojiSource) and self.source.test_share + self.source.valid_share >= 1:
            found += ["source.test_share + source.valid_share must leave something to train on (sum below 1)"]
        if isinstance(self.source, ImageSplit) and self.source.train_share + self.source.valid_share >= 1:
            found += ["source.train_share + source.valid_share must leave something to test on (sum below 1)"]
        if isinstance(self.source, ShapesSource) and (odd := [s for s, n in self.source.clips.items() if n < 0]):
            found += [f"source.clips.{odd[0]}: a number of clips is needed, 0 or more"]
        if isinstance(self.source, TableSource) and self.clips and not self.source.videos:
            found += ["source.videos: this key is missing; name the folder, or set clips: false if none are here"]
        if found:
            raise ValueError("\n".join(found))
        return self

    @property
    def made_here(self) -> bool:
        """Whether the workflow makes or fetches the source files itself."""
        return self.source.format in ("shapes", "emoji", "stamps", "embeddings")

    @property
    def vectors(self) -> bool:
        """Whether it holds vectors, so that there is nothing to normalise and no tower to run."""
        return isinstance(self.source, EmbeddingsSource)

    @property
    def items(self) -> Items:
        """What the data set holds."""
        return getattr(self.source, "items", "videos")

    @property
    def media(self) -> Video | Image:
        """How its source files are normalised."""
        return self.image if self.items == "images" else self.video
