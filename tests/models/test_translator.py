"""The translator in use: geometry that is frozen and then is not, closed forms, options, submissions, costs."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from checkout import CHALLENGE
from golden_numbers import agree, load
from messages import refusal
from rewind.analyses.efficiency import EFFICIENCY_COLUMNS, efficiency_table
from rewind.config import Backbone, Method, RunSpec, Text, Training
from rewind.config.evaluation import Evaluation
from rewind.data.readers import NpzArchive
from rewind.evaluation.efficiency import model_size, query_costs
from rewind.evaluation.embedding import compute_embeddings
from rewind.evaluation.submission import check_submission_rows, translate_captions, write_submission_rows
from rewind.loading.run_data import EmbeddingFrames, TrainingData, _with_widths
from rewind.losses.infonce import infonce
from rewind.models.embeddings import build as build_towers
from rewind.models.translator import GeometryTranslator, build, make_translator
from rewind.tables.render import MARKUPS
from rewind.torch_setup import seed_everything
from rewind.training.checkpoint import StateFile
from rewind.training.loop import train_model
from rewind.training.optim import lr_factor

KEYS = Training(epochs=5, lr=1e-2, micro_batch=None, batch={"size": 8})


def data(count: int = 24) -> TrainingData:
    generator = torch.Generator().manual_seed(1)
    items = torch.randn(count, 6, generator=generator)
    text = items @ torch.randn(6, 5, generator=generator) + 0.1 * torch.randn(count, 5, generator=generator)
    rows = np.arange(count)
    return TrainingData(EmbeddingFrames(items), text, rows, rows, [f"c{n}" for n in range(count)])


def watched(options: dict, keys: Training = KEYS) -> list[torch.Tensor]:
    """Geometry's weights at the end of every epoch, and the fitted ones first."""
    seed_everything(0)
    translator = make_translator("geometry_adapter", 5, 6, {"hidden": 8} | options)
    seen = []

    def validate(model):
        seen.append(model.geometry.weight.detach().clone())
        return {"valid_sum": float(len(seen)), "valid_R@1": 0.0}

    translator.prepare(data())
    seen.append(translator.geometry.weight.detach().clone())
    train_model(
        translator, data(), keys, 0, torch.device("cpu"), validate, StateFile(Path("/nonexistent/s.pt"), "f"), "t"
    )
    return seen


@pytest.fixture(autouse=True)
def nowhere(monkeypatch):
    monkeypatch.setattr(StateFile, "save", lambda self, state: None)


def test_geometry_is_frozen_and_then_is_not():
    fitted, *epochs = watched({"unfreeze_at": 3})
    assert torch.equal(epochs[0], fitted)
    assert torch.equal(epochs[1], fitted)
    moved = [float((one - two).abs().max()) for one, two in zip(epochs[2:], epochs[1:], strict=False)]
    assert all(step > 0 for step in moved)


def test_geometry_that_is_never_unfrozen_stays_though_weights_decay():
    fitted, *epochs = watched({"unfreeze_at": None}, KEYS.model_copy(update={"weight_decay": 1.0}))
    assert all(torch.equal(epoch, fitted) for epoch in epochs)


def test_geometry_learns_at_its_share_of_the_rate():
    translator = make_translator("geometry_adapter", 5, 6, {"hidden": 8, "geometry_lr": 0.05})
    groups = translator.parameter_groups(KEYS)
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert len(rates) == len(list(translator.parameters()))
    for name, parameter in translator.named_parameters():
        assert rates[id(parameter)] == pytest.approx(KEYS.lr * (0.05 if "geometry" in name else 1))
        assert decay[id(parameter)] == (KEYS.weight_decay if parameter.ndim > 1 else 0)
    slow, fast = (watched({"unfreeze_at": 1, "geometry_lr": rate}) for rate in (1e-3, 1.0))
    step = [float((epochs[1] - epochs[0]).abs().max()) for epochs in (slow, fast)]
    assert 100 * step[0] < step[1]


def test_the_adapter_starts_as_geometry():
    translator = make_translator("geometry_adapter", 5, 6, {"hidden": 64})
    alone = make_translator("geometry", 5, 6)
    split = data()
    translator.prepare(split)
    alone.fit(split.text, split.inputs.values)
    text = split.text
    whole, closed = (model.eval().encode_text({"text": text})["text"] for model in (translator, alone))
    assert torch.equal(translator.geometry.weight, alone.network.weight)
    assert (whole - closed).norm() < 0.1 * closed.norm()


def test_geometry_beats_chance_and_ridge_too():
    split = data()
    for head in ("geometry", "ridge"):
        model = make_translator(head, 5, 6, {"alpha": 0.1} if head == "ridge" else {})
        model.fit(split.text, split.inputs.values, split.text, split.inputs.values)
        items = model.encode_items(split.inputs.batch(np.arange(24)))
        scores = model.similarity(model.encode_text({"text": split.text}), items)
        assert (scores.argmax(1) == torch.arange(24)).float().mean() > 0.5, head


def test_ridge_translates_to_its_prediction_in_the_space_of_items():
    split = data()
    model = make_translator("ridge", 5, 6, {"alpha": 0.1})
    model.fit(split.text, split.inputs.values)
    centred = split.text - split.text.mean(dim=0)
    wanted = centred @ model.weight + split.inputs.values.mean(dim=0)
    wanted = wanted / wanted.norm(dim=1, keepdim=True)
    assert torch.allclose(model.translate(split.text), wanted, rtol=0, atol=1e-5)


def test_heads_may_start_as_the_original_says():
    torch.manual_seed(0)
    for head in ("linear", "mlp1", "mlp2"):
        layers = [
            m for m in make_translator(head, 100, 80, {"start": "xavier"}).modules() if isinstance(m, torch.nn.Linear)
        ]
        for layer in layers:
            wide = 6 / layer.in_features if layer is not layers[-1] else 6 / (layer.in_features + layer.out_features)
            assert 0.97 * wide**0.5 < layer.weight.abs().max() <= wide**0.5 and not layer.bias.any()


def test_geometry_has_no_direction_that_is_not_finite():
    text = torch.randn(8, 5)
    text[:, 3] = 2.0  # a direction without variance
    model = make_translator("geometry", 5, 6)
    model.fit(text, torch.randn(8, 6))
    assert torch.isfinite(model.network.weight).all()
    with refusal("geometry"):
        model.fit(text, torch.full((8, 6), torch.nan))


def test_logits_are_scaled_cosines_and_infonce_trains_it():
    translator = make_translator("linear", 5, 6)
    split = data()
    batch = split.batch(np.arange(8))
    text, items = translator.encode_text(batch), translator.encode_items(batch)
    left, right = translator.vectors(text, items)
    assert torch.allclose(translator.similarity(text, items), left @ right.T / 0.07, rtol=0, atol=1e-4)
    assert torch.allclose(translator.translate(split.text[:8]), left, rtol=0, atol=1e-6)
    infonce(translator, text, items, batch).value.backward()
    assert translator.network.weight.grad.abs().sum() > 0


def test_scores_are_float32_under_autocast():
    translator, split = make_translator("mlp1", 5, 6).eval(), data()
    batch = split.batch(np.arange(8))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        text, items = translator.encode_text(batch), translator.encode_items(batch)
        found = translator.similarity(text, items)
    assert found.dtype == text["text"].dtype == torch.float32
    assert torch.equal(found, translator.similarity(text, items))


def test_pictures_of_the_space_show_what_is_compared():
    split = data()
    found = compute_embeddings(
        make_translator("mlp1", 5, 6), split.text, split.inputs, Evaluation(batch_size=7), torch.device("cpu")
    )
    assert found.space == "joint"
    assert np.allclose(np.linalg.norm(found.text, axis=1), 1, rtol=0, atol=1e-5)
    assert np.allclose(np.linalg.norm(found.items, axis=1), 1, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("head", "options", "place"),
    [
        ("mlp3", {}, "methods.*.head"),
        ("linear", {"hiden": 8}, "methods.*.options.hiden: model"),
        ("geometry", {"eps": 0}, "methods.*.options.eps"),
        ("geometry_adapter", {"unfreeze_at": 0}, "methods.*.options.unfreeze_at"),
    ],
)
def test_bad_methods_are_refused(head, options, place):
    with refusal(place):
        make_translator(head, 5, 6, options)


def test_widths_come_from_the_data_set():
    method = Method(model="translator", head="geometry")
    with refusal("backbone.kind: embeddings"):
        build(method, Backbone(kind="embeddings"), Text(), [])
    made = build(method, Backbone(kind="embeddings", text_width=5, item_width=6), Text(), [])
    assert isinstance(made, GeometryTranslator)
    assert method.baseline
    assert not Method(model="translator", head="linear").baseline

    class Found:
        text_width, item_width, index = 5, 6, "results/data/d/source/embeddings.json"

    spec = RunSpec(backbone={}, frames={}, text={}, evaluation={}, method={})
    filled = _with_widths(spec, Found()).backbone
    assert (filled.text_width, filled.item_width) == (5, 6)
    wrong = spec.model_copy(update={"backbone": Backbone(item_width=7)})
    with refusal("backbone.item_width"):
        _with_widths(wrong, Found())
    towers = build_towers(filled, Text(), [])
    assert towers.encode_text(torch.zeros(2, 5).half()).shape == (2, 256)
    with refusal():
        towers.prepare_text(["a dog"])


@pytest.mark.golden
def test_the_seeds_learning_rate_after_its_warm_up():
    golden = load("translator.npz")
    steps, base = golden["sched/lr_used_at_step"], float(golden["sched/base_lr"])
    epoch = int(golden["sched/steps_per_epoch"])
    ours = [base * lr_factor(step, len(steps), epoch / len(steps), 0.1) for step in range(len(steps))]
    agree("Translator", "schedules", ours[epoch:], steps[epoch:], rtol=1e-12)
    # The original reaches the full rate in the warm-up's last step, here it is the step after it.
    assert ours[:epoch] == pytest.approx([base * (step + 1) / (epoch + 1) for step in range(epoch)])


def test_a_submission_has_the_challenges_bytes(tmp_path):
    expected = gzip.decompress((CHALLENGE / "submission_example.csv.gz").read_bytes())
    vectors = np.load(CHALLENGE / "submission_example_embeddings.npy")
    ids = [line.split(b",", 1)[0].decode() for line in expected.splitlines()[1:]]
    write_submission_rows(tmp_path / "s.csv", ids, vectors)
    assert (tmp_path / "s.csv").read_bytes() == expected
    check_submission_rows(tmp_path / "s.csv", ids, vectors)


def test_a_submission_is_read_back(tmp_path):
    unit = np.eye(3, 4, dtype=np.float32)
    write_submission_rows(tmp_path / "s.csv", ["1", "2", "3"], unit)
    check_submission_rows(tmp_path / "s.csv", ["1", "2", "3"], unit)
    text = (tmp_path / "s.csv").read_text()
    for changed, place in (
        (text.replace("id,", "ids,"), "t.csv"),
        (text.replace("\n2,", "\n7,"), "t.csv: row 3"),
        (text.replace("1.0", "0.5", 1), "t.csv: row 2"),
        (text.replace("[0.0", "[x", 1), "t.csv: row 3"),
        (text.rsplit("\n", 2)[0] + "\n", "t.csv"),
    ):
        (tmp_path / "t.csv").write_text(changed)
        with refusal(place):
            check_submission_rows(tmp_path / "t.csv", ["1", "2", "3"], unit)
    write_submission_rows(tmp_path / "u.csv", ["1"], 2 * unit[:1])
    with refusal("u.csv: row 2"):
        check_submission_rows(tmp_path / "u.csv", ["1"], 2 * unit[:1])


def test_captions_of_a_test_npz_are_mapped():
    archive, model = NpzArchive(CHALLENGE / "test.clean.npz"), make_translator("linear", 1024, 8).eval()
    count = archive.member("captions/embeddings").shape[0]
    found = translate_captions(model, archive, 1024, count)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, rtol=0, atol=1e-6)
    with refusal("tests/golden/challenge/test.clean.npz"):
        translate_captions(model, archive, 512, count)


def test_costs_are_measured(monkeypatch):
    monkeypatch.setattr("rewind.evaluation.efficiency.MIN_SECONDS", 0.0)
    split, model = data(), make_translator("linear", 5, 6)
    costs = query_costs(model, split.text, split.inputs, [1, 64], torch.device("cpu"), "CPU")
    assert [(cost.batch, cost.gallery) for cost in costs] == [(1, 24), (64, 24)]
    assert all(cost.forward > 0 and cost.search > 0 and cost.rounds >= 20 for cost in costs)
    assert costs[1].forward < costs[0].forward
    parameters, megabytes = model_size(model)
    assert parameters == 36
    assert megabytes == pytest.approx(37 * 4 / 2**20)
    rows = [
        ["linear", "Linear", 36, megabytes, "CPU", 1, c.batch, c.gallery, c.forward, c.search, c.rounds] for c in costs
    ]
    table = pd.DataFrame(rows, columns=list(EFFICIENCY_COLUMNS))
    for render in MARKUPS.values():
        text = render(efficiency_table(table, "Stamps"))
        assert "Linear" in text
        assert "24 items" in text
