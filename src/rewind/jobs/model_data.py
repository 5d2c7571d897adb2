"""The data that a job gives to a model."""

from __future__ import annotations

from pathlib import Path

from rewind.feeding.folder import DataFolder
from rewind.jobs.given import Given
from rewind.jobs.unpack import cache_of, frames_of, path_of, spec_of


def data_folder(given: Given) -> DataFolder:
    """The data of a rule that computes features or similarities."""
    spec = spec_of(given)
    pretrained = path_of(given.input, "pretrained")
    if pretrained is not None:
        spec = spec.model_copy(update={"backbone": spec.backbone.model_copy(update={"weights": str(pretrained)})})
    folder, frames = Path(given.input.item_table).parent, frames_of(given)
    return DataFolder(folder, given.params.dataset, spec, frames, cache_of(given.input, frames))
