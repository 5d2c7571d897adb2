"""A finished run as CLIP4Clip's ``pytorch_model.bin``."""

from __future__ import annotations

from pathlib import Path

import torch

from rewind.compat import open_clip
from rewind.errors import RewindError
from rewind.jobs.seals import check_below
from rewind.models.architectures import architecture
from rewind.models.clip4clip_files import HELD, check_towers, write_state
from rewind.models.weights import read_state
from rewind.reading.objects import read_json


def export_clip4clip(run: Path, out: Path) -> None:
    """Write the model of a finished run in CLIP4Clip's format.

    Args:
        run: folder with the run's ``model.safetensors`` and ``run.json``.
        out: file to write, atomically.

    Raises:
        RewindError: if there is no finished run, or its model is none that CLIP4Clip can compute.
    """
    check_below(run, "run.json", "model.safetensors")
    spec = read_json(run / "run.json").get("spec", {})
    method, backbone = spec.get("method", {}), spec.get("backbone", {})
    if (method.get("model"), backbone.get("kind")) != ("clip4clip", "clip") or method.get("head") not in HELD:
        raise RewindError(
            f"{run}: CLIP4Clip's format is for CLIP towers with one of the heads {', '.join(HELD)}; this run is "
            f"{method.get('model')} {method.get('head')} on {backbone.get('kind')}."
        )
    with torch.device("meta"):  # its form alone
        check_towers(open_clip("model").CLIP(**architecture(backbone["architecture"])), str(run))
    write_state(read_state(run / "model.safetensors"), method["head"], out)
