"""Dataset and study files as typed models: the one place where a key is defined, bounded and documented.

:func:`load_dataset` and :func:`load_study` read YAML files. :class:`Study` and :class:`Dataset` are what they return.
"""

from rewind.config.dataset import (
    ActivitynetSource,
    CiaSource,
    ComposedSource,
    Dataset,
    DidemoSource,
    EmojiSource,
    FieldSource,
    Flickr8kSource,
    FoilsSource,
    Image,
    InternvidSource,
    LsmdcSource,
    ModuleSource,
    MsrvttSource,
    MsvdSource,
    MtebSource,
    NegationSource,
    PhotosSource,
    RTimeSource,
    ShapesSource,
    StampsSource,
    TableSource,
    VatexSource,
    Video,
    Youcook2Source,
)
from rewind.config.load import load_dataset, load_study
from rewind.config.methods import Backbone, Method
from rewind.config.study import Frames, RunSpec, Study, Text
from rewind.config.training import Training

__all__ = [
    "ActivitynetSource",
    "Backbone",
    "CiaSource",
    "ComposedSource",
    "Dataset",
    "DidemoSource",
    "EmojiSource",
    "FieldSource",
    "Flickr8kSource",
    "FoilsSource",
    "Frames",
    "Image",
    "InternvidSource",
    "LsmdcSource",
    "Method",
    "ModuleSource",
    "MsrvttSource",
    "MsvdSource",
    "MtebSource",
    "NegationSource",
    "PhotosSource",
    "RTimeSource",
    "RunSpec",
    "ShapesSource",
    "StampsSource",
    "Study",
    "TableSource",
    "Text",
    "Training",
    "VatexSource",
    "Video",
    "Youcook2Source",
    "load_dataset",
    "load_study",
]
