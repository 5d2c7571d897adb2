"""Dataset and study files as typed models: the one place where a key is defined, bounded and documented."""

from rewind.study.dataset import (
    Dataset,
    EmojiSource,
    Flickr8kSource,
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
from rewind.study.load import load_dataset, load_study
from rewind.study.model import BASELINES, Backbone, Frames, Method, RunSpec, Study, Text
from rewind.study.training import Training

__all__ = [
    "BASELINES",
    "Backbone",
    "Dataset",
    "EmojiSource",
    "Flickr8kSource",
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
