"""The modules of docs/add-a-method.md as they stand there: trained and scored, on one process and on two."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp

from checkout import ROOT
from gradients import CAPTIONS, CPU, batch_of, error, gradients
from rewind.config import Method, Study
from rewind.config.evaluation import Evaluation
from rewind.config.load import load_study
from rewind.distributed import World, join_process_group
from rewind.evaluation.similarity import similarity_matrix
from rewind.loading.frame_source import CachedFrames
from rewind.loading.run_data import TrainingData
from rewind.losses.base import make_objective
from rewind.models.heads.base import Head
from rewind.models.registry import model_hooks
from rewind.models.retriever import Retriever
from rewind.torch_setup import seed_everything
from rewind.training.checkpoint import StateFile
from rewind.training.grad_cache import exact_step
from rewind.training.loop import train_model

pytestmark = pytest.mark.slow

BLOCK = re.compile(r"`((?:mylab|config)/[\w/]+\.(?:py|yaml))`:\n\n```(?:python|yaml)\n(.*?)```", re.DOTALL)
METHODS = ("meanP", "attention", "looking", "closest", "margin", "weighed", "shuffled")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """A folder with the page's files under the names that it gives them."""
    folder = tmp_path_factory.mktemp("page")
    for name, code in BLOCK.findall((ROOT / "docs/add-a-method.md").read_text()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    return folder


def study_of(page: Path) -> Study:
    return load_study("my_heads", page / "config/studies")


def built(study: Study, method: Method) -> Retriever:
    seed_everything(0)
    backbone = study.backbone.model_copy(update={"architecture": str(ROOT / study.backbone.architecture)})
    model = model_hooks(method.model).build(method, backbone, study.text, CAPTIONS)
    return model.double()


def step(study: Study, name: str, world: World) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of one step of the method's own objective."""
    method = study.methods[name]
    model = built(study, method).eval()
    batch = {key: value[world.share(len(value))] for key, value in batch_of(model).items()}
    return exact_step(model, make_objective(method.training), batch, 3, world=world).value, gradients(model)


def scores(study: Study, name: str, folder: Path, world: World) -> np.ndarray:
    """Similarities after two epochs."""
    method = study.methods[name]
    model = built(study, method).float()
    draw, rows = np.random.default_rng(0), np.arange(len(CAPTIONS))
    inputs = CachedFrames(draw.normal(size=(len(rows), 3, 96)).astype(np.float32), np.ones((len(rows), 3), np.uint8))
    names = [str(row) for row in rows]
    data = TrainingData(inputs, model.backbone.prepare_text(CAPTIONS), rows, rows, names, CAPTIONS)
    keys = method.training.model_copy(
        update={"epochs": 2, "batch": method.training.batch.model_copy(update={"size": 8}), "micro_batch": 3}
    )
    state = StateFile(folder / f"{name}.pt", "x")
    train_model(model, data, keys, 0, CPU, lambda retriever: {"valid_sum": 1.0}, state, name, world=world)
    return similarity_matrix(model, data.text, inputs, Evaluation(pair_batch_size=32), CPU, world)


def work(rank: int, size: int, port: int, page: Path) -> None:
    torch.set_num_threads(1)
    sys.path.insert(0, str(page))
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with join_process_group() as world:
        study = study_of(page)
        steps = {name: step(study, name, world) for name in METHODS}
        found = {"steps": steps, "scores": {name: scores(study, name, page, world) for name in METHODS}}
        torch.save(found, page / f"rank{rank}.pt")


@pytest.fixture(scope="module")
def two(page: Path) -> list[dict]:
    """What two processes found, by rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, (2, port, page), nprocs=2)
    return [torch.load(page / f"rank{rank}.pt", weights_only=False) for rank in range(2)]


def test_the_page_names_every_method(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(page))
    study = study_of(page)
    assert tuple(study.methods) == METHODS and {path.name for path in (page / "mylab").iterdir()} >= {
        "heads.py",
        "pairs.py",
        "closest.py",
        "margin.py",
        "weighed.py",
        "shuffled.py",
    }
    head = built(study, study.methods["looking"]).head
    assert type(head).pair_rows is Head.pair_rows, "the plain contract is what is tested"


@pytest.mark.parametrize("name", METHODS)
def test_documented_methods_are_the_same_on_two_processes(two, page: Path, tmp_path: Path, monkeypatch, name) -> None:
    monkeypatch.syspath_prepend(str(page))
    study = study_of(page)
    loss, wanted = step(study, name, World())
    trained = scores(study, name, tmp_path, World())
    assert np.isfinite(trained).all() and np.ptp(trained) > 0
    for found in two:
        value, grads = found["steps"][name]
        assert value == pytest.approx(loss, rel=1e-12) and error(grads, wanted) < 1e-10
        np.testing.assert_allclose(found["scores"][name], trained, rtol=2e-2, atol=2e-2)
