"""A small prepared data set with twins, and tiny models with random weights on disk, for tests of encoders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from rewind import optional_packages
from rewind.config import Video
from rewind.config.encoders import Encoding
from rewind.io.files import write_csv
from rewind.video import ffmpeg
from rewind.video.transcode import transcode_clip

NAMES = ("a", "b", "c")
WORDS = ("a red square moves left", "a square moves right", "two circles", "a red square moves left")


def prepared(folder: Path) -> Path:
    """Items a, b and c with twins, an unusable one, and captions, of which two say the same."""
    (folder / "videos").mkdir(parents=True)
    rows = [("gone", "videos/gone.mp4", "test", "gone", 0, "missing")]
    captions = [("gone", "nobody sees this", "gone#0")]
    for name, seconds in zip(NAMES, (2.0, 0.6, 1.4), strict=True):
        source, clip, twin = (folder / f"{part}.mp4" for part in ("source", f"videos/{name}", f"videos/{name}_rev"))
        drawing = ["-f", "lavfi", "-i", f"testsrc2=s=60x40:r=25:d={seconds}", "-c:v", "libx264", "-qp", "10"]
        assert ffmpeg.run_command([ffmpeg.executable(), *drawing, str(source), "-y"]).code == 0
        assert transcode_clip(source, clip, twin, Video(fps=5, short_side=32), None).status == "ok"
        for item, reversed in ((name, 0), (f"{name}_rev", 1)):
            rows.append((item, f"videos/{item}.mp4", "test", name, reversed, "ok"))
            captions.append((item, WORDS[len(captions) % len(WORDS)], f"{item}#0"))
    columns = ["item_id", "path", "split", "cluster_id", "reversed", "status"]
    write_csv(folder / "items.csv", pd.DataFrame(rows, columns=columns))
    columns = ["video_id", "caption", "caption_id"]
    write_csv(folder / "captions/tiny_test.csv", pd.DataFrame(captions, columns=columns))
    return folder


def moving(frames: int, seed: int = 0) -> np.ndarray:
    """A clip uint8 (T, 40, 60, 3) of noise, each frame another."""
    return np.random.default_rng(seed).integers(0, 256, (frames, 40, 60, 3), dtype=np.uint8)


OPEN_CLIP = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 20, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}
SQUASH = {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25], "interpolation": "bilinear", "resize_mode": "squash"}


def open_clip_folder(folder: Path) -> Path:
    """A folder as the hub has them: configuration with preprocessing of its own, and weights."""
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    model = optional_packages.open_clip("model").CLIP(**OPEN_CLIP)
    torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")
    content = {"model_cfg": OPEN_CLIP, "preprocess_cfg": SQUASH}
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    return folder


def keys(encoder: str, name: str | Path, **more: object) -> Encoding:
    """An encoding with the defaults that a study gives."""
    return Encoding(**{"encoder": encoder, "name": str(name), "max_frames": 4, "sampling": "uniform"} | more)
