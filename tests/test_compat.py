"""One door to open_clip and torchvision, so that no order of imports can be wrong."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT

BEHIND_THE_DOOR = {"open_clip", "torchvision", "timm", "transformers", "sentence_transformers"}
FILES = [
    path
    for folder in ("src", "workflow", "benchmarks", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != ROOT / "src/rewind/optional_packages.py"
]


def named(tree: ast.AST) -> set[str]:
    """Top packages that a file imports, by statement or by name."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "importorskip")):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                found.add(first.value.split(".")[0])
    return found


def test_nothing_else_imports_them() -> None:
    assert len(FILES) > 200
    wrong = {str(path.relative_to(ROOT)) for path in FILES if named(ast.parse(path.read_text())) & BEHIND_THE_DOOR}
    assert not wrong, f"ask rewind.optional_packages instead: {sorted(wrong)}"


@pytest.mark.parametrize(
    "line",
    [
        "import torchvision.transforms",
        "from open_clip.model import CLIP",
        "def f():\n    from open_clip import list_models",
        "importlib.import_module('timm.models')",
    ],
)
def test_every_way_to_import_is_seen(line: str) -> None:
    assert named(ast.parse(line)) & BEHIND_THE_DOOR


# The stage that counts captions which are too long: of all stages the first to ask for a tokenizer without a model.
TABLES = """
from pathlib import Path
Path("captions").mkdir()
Path("items.csv").write_text("item_id,path,split,cluster_id,reversed,status\\na,a.mp4,test,a,0,ok\\nb,b.mp4,train,b,0,ok\\n")
for split, item in (("test", "a"), ("train", "b")):
    Path(f"captions/shapes_{split}.csv").write_text(f"video_id,caption,caption_id\\n{item},a red ring turns,{item}1\\n")
Path("captions/report.json").write_text("{}")
from rewind.report.study import _data_notes
from rewind.config import Dataset, Study
study = Study.model_validate({"name": "s", "dataset": "shapes", "methods": {"a": {}}, "text": {"max_words": 4}})
dataset = Dataset.model_validate({"name": "shapes", "source": {"format": "shapes"}})
print(list(filter(None, _data_notes(study, dataset, Path(".")))))
"""


def in_a_fresh_process(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Python that has imported nothing; the fixtures' imports are not there."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        TABLES,
        "from rewind.models.towers import load_image_tower; print(load_image_tower('resnet18').width)",
    ],
    ids=["tables", "resnet"],
)
def test_whatever_asks_first_gets_it(first: str, tmp_path: Path) -> None:
    done = in_a_fresh_process(first, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("['1 of 1 test captions (100.0%) are cut at 4 tokens']", "512")


def test_the_library_itself_imports_none_of_them(tmp_path: Path) -> None:
    """They take seconds: importing the modules that use them must not pay for that."""
    modules = (
        "rewind.data.tokenizers, rewind.models.clip, rewind.models.weights, rewind.models.towers, rewind.cli.doctor"
    )
    done = in_a_fresh_process(f"import sys, {modules}; print(sorted({BEHIND_THE_DOOR} & set(sys.modules)))", tmp_path)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.slow
def test_operators_that_are_there_are_not_named_again(tmp_path: Path) -> None:
    """As beside a torchvision that was built without CUDA: a second definition would be an error."""
    code = """
import torch
library = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from rewind.optional_packages import torchvision
print(torchvision("transforms").CenterCrop.__name__)
"""
    done = in_a_fresh_process(code, tmp_path)
    assert done.stdout.strip() == "CenterCrop", done.stderr


@pytest.mark.slow
def test_a_network_of_open_clip_does_not_pay_for_what_others_need(tmp_path: Path) -> None:
    """timm, transformers and torch's compiler take two seconds of a job; they come where they are used, as they are."""
    code = """
import copy, pickle, sys
import torch
from rewind.optional_packages import open_clip

TEXT = {"context_length": 8, "vocab_size": 100, "width": 16, "heads": 2, "layers": 1}
FRAME = torch.zeros(1, 3, 32, 32)

def built(**vision):
    return open_clip("model").CLIP(embed_dim=16, vision_cfg={"image_size": 32} | vision, text_cfg=TEXT)

built(layers=1, width=64, patch_size=16).encode_image(FRAME)
print(sorted({"timm", "transformers", "torch._dynamo", "torch._dynamo.utils"} & set(sys.modules)))
towers = built(timm_model_name="resnet10t", timm_pool="avg", timm_proj="linear").eval()
print("timm" in sys.modules, towers.encode_image(FRAME).shape)
print(isinstance(towers.visual, open_clip().timm_model.TimmModel))
copied = pickle.loads(pickle.dumps(copy.deepcopy(towers))).eval()
print(torch.equal(copied.encode_image(FRAME), towers.encode_image(FRAME)))
from torch._dynamo.utils import is_compile_supported
print(is_compile_supported("cpu") == sys.modules["torchvision.ops.roi_align"].is_compile_supported("cpu"))
"""
    done = in_a_fresh_process(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "True torch.Size([1, 16])", "True", "True", "True"]
