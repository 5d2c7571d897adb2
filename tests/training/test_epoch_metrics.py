"""A run's metrics.csv: the original's columns, and its retrieval numbers."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from golden_numbers import agree, load
from gradients import CPU
from rewind.config.evaluation import Evaluation
from rewind.io.files import write_csv
from rewind.loading.frame_source import CachedFrames
from rewind.loading.run_data import PreparedSplit
from rewind.models.retriever import Retriever
from rewind.training.epoch_metrics import epoch_metrics
from rewind.training.run import make_validator

GOLDEN = load("sanw.npz")
HEADER = (
    "epoch,r1_i2t,r5_i2t,r10_i2t,r1_t2i,r5_t2i,r10_t2i,mean_r1,zs_cifar10,logit_scale,exp_logit_scale,lr,loss,w_mean,"
    "w_low_pct,w_high_pct,w_sim_corr,unweighted_margin,weighted_margin"
)


class Given(Retriever):
    """Cosines of what is given as text and as frames."""

    def encode_text(self, batch):
        return {"text": F.normalize(batch["text"], dim=-1)}

    def encode_items(self, batch):
        return {"video": F.normalize(batch["frames"][:, 0], dim=-1)}

    def similarity(self, text, items):
        return text["text"] @ items["video"].T


def golden_split() -> PreparedSplit:
    image, text = GOLDEN["eval/image"], GOLDEN["eval/text"]
    ids = [f"i{row}" for row in range(len(image))]
    items = pd.DataFrame({"item_id": ids, "cluster_id": ids, "reversed": 0})
    captions = pd.DataFrame({"video_id": ids, "caption": ids, "caption_id": [f"c{row}" for row in range(len(text))]})
    mask = np.ones((len(image), 1), np.uint8)
    return PreparedSplit(items, captions, CachedFrames(image[:, None], mask), torch.from_numpy(text))


@pytest.mark.golden
def test_retrieval_columns_are_the_originals_numbers():
    row = make_validator(golden_split(), "auto", Evaluation(), CPU)(Given())
    found = epoch_metrics([row | {"epoch": 1}]).iloc[0]
    for way in ("i2t", "t2i"):
        for k in (1, 5, 10):
            agree("SANW, evaluation", "metrics", found[f"r{k}_{way}"], GOLDEN[f"eval/{way}/r{k}"], atol=1e-6)
    agree("SANW, evaluation", "metrics", found["mean_r1"], GOLDEN["eval/mean_r1"], atol=1e-6)
    assert found["r1_i2t"] != found["r1_t2i"], "the directions cannot be mistaken for each other"


def test_the_header_is_the_originals_and_what_is_not_there_is_empty(tmp_path):
    history = [{"epoch": 1, "loss": 2.5, "lr": 0.1, "logit_scale": math.log(50)}, {"epoch": 2, "zs_cifar10": 31.0}]
    write_csv(tmp_path / "metrics.csv", epoch_metrics(history))
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert lines[0] == HEADER and lines[1].startswith("1,,,,,,,,,3.91") and len(lines) == 3
    found = pd.read_csv(tmp_path / "metrics.csv")
    assert found["exp_logit_scale"][0] == pytest.approx(50) and found["zs_cifar10"][1] == 31
    write_csv(tmp_path / "none.csv", epoch_metrics([]))
    assert (tmp_path / "none.csv").read_text().strip() == HEADER, "a method that is not trained has no epochs"
