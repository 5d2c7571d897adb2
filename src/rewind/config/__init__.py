"""Dataset and study files as typed models: the one place where a key is defined, bounded and documented.

:func:`load_dataset` and :func:`load_study` read YAML files. :class:`Study` and :class:`Dataset` are what they return.
"""

from rewind.config.dataset import (
    CiaSource,
    Dataset,
    EmojiSource,
    Flickr8kSource,
    FoilsSource,
    Image,
    InternvidSource,
    ModuleSource,
    PhotosSource,
    RTimeSource,
    ShapesSource,
    StampsSource,
    TableSource,
    Video,
)
from rewind.config.load import load_dataset, load_study
from rewind.config.methods import BASELINES, Backbone, Method
from rewind.config.study import Frames, RunSpec, Study, Text
from rewind.config.training import Training

__all__ = [
    "BASELINES",
    "Backbone",
    "CiaSource",
    "Dataset",
    "EmojiSource",
    "Flickr8kSource",
    "FoilsSource",
    "Frames",
    "Image",
    "InternvidSource",
    "Method",
    "ModuleSource",
    "PhotosSource",
    "RTimeSource",
    "RunSpec",
    "ShapesSource",
    "StampsSource",
    "Study",
    "TableSource",
    "Text",
    "Training",
    "Video",
    "load_dataset",
    "load_study",
]
