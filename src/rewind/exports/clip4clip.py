"""Write a finished run as CLIP4Clip's checkpoint, ``pytorch_model.bin``."""

from __future__ import annotations

from pathlib import Path

import torch

from rewind.errors import RewindError
from rewind.io.strict import read_user_json
from rewind.models.architectures import load_architecture
from rewind.models.clip4clip_checkpoint import CLIP4CLIP_HEADS, check_clip4clip_towers, write_clip4clip_state
from rewind.models.weights import read_state
from rewind.optional_packages import open_clip
from rewind.workflow.checksums import verify_files_below


def export_clip4clip(run: Path, out: Path) -> None:
    """Write the model of a finished run, the folder ``run``, in CLIP4Clip's format, atomically.

    Raises:
        RewindError: if there is no finished run, or CLIP4Clip does not have its model.
    """
    verify_files_below(run, "run.json", "model.safetensors")
    spec = read_user_json(run / "run.json").get("spec", {})
    method, backbone = spec.get("method", {}), spec.get("backbone", {})
    model, head, kind = method.get("model"), method.get("head"), backbone.get("kind")
    if (model, kind) != ("clip4clip", "clip") or head not in CLIP4CLIP_HEADS:
        raise RewindError(
            f"{run}: CLIP4Clip's format is for CLIP towers with one of the heads {', '.join(CLIP4CLIP_HEADS)}; this "
            f"run is {model} {head} on {kind}."
        )
    with torch.device("meta"):  # only the shapes of the towers' parameters are needed: no memory, no initialisation
        check_clip4clip_towers(open_clip("model").CLIP(**load_architecture(backbone["architecture"])), str(run))
    write_clip4clip_state(read_state(run / "model.safetensors"), head, out)
