"""Which edit makes which stage stale: on a copy of this checkout's code, without running any of it."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from checkout import ROOT
from messages import refusal
from rewind.analyses import all_analyses, analysis_rules, module_of
from rewind.config import Backbone, Frames, Method, RunSpec, Text
from rewind.config.evaluation import Evaluation
from rewind.job_values import Job, NamedList, Outputs
from rewind.registry import BACKBONES, FORMATS, HEADS, LOSSES, MODELS, SAMPLERS
from rewind.training.checkpoint import StateFile
from rewind.training.run import TrainingJob
from rewind.workflow.job import run_script
from rewind.workflow.stages import RULES, SUB_STAGES, CodeDependencies, code_roots, strip_rule_prefix
from rewind.workflow.staleness.code_hash import StageCode, compute_code_hash
from rewind.workflow.staleness.no_effect import is_ignored
from rule_files import rules_text

RUN = (
    *(MODELS.full_name("clip4clip"), BACKBONES.full_name("clip")),
    *(LOSSES.full_name("infonce"), SAMPLERS.full_name("uniform")),
)
MODEL = RUN[:2]
SHAPES = (FORMATS.full_name("shapes"),)
INHERITING = {
    rule for rule, stage in RULES.items() if stage.script and not stage.function
}  # their code is that of another rule
CLIPS = {"sources", "inventory", "video_shard", "captions"}
TRAINED = {"train seqTransf", "train meanP", "train zero-shot", "sanity", "step_time"}
RUNS = {"untrained_run", "blind_run", "rerank"}  # does in one job what trains, scores and ranks others, or scores


def identities(identity: StageCode) -> dict[str, dict[str, str]]:
    """Every stage as a study on clips has it; training and scoring of two heads, and with zero-shot validation."""
    found = {
        "train seqTransf": identity.parts("train", CodeDependencies([*RUN, HEADS.full_name("seqTransf")])),
        "train meanP": identity.parts("train", CodeDependencies([*RUN, HEADS.full_name("meanP")])),
        "train zero-shot": identity.parts("train", CodeDependencies([*RUN, HEADS.full_name("meanP")], zero_shot=True)),
        "similarity seqTransf": identity.parts("similarity", CodeDependencies([*MODEL, HEADS.full_name("seqTransf")])),
        "similarity meanP": identity.parts("similarity", CodeDependencies([*MODEL, HEADS.full_name("meanP")])),
    }
    for stage in {*RULES, *SUB_STAGES} - {"train", "similarity", "gallery", *INHERITING}:
        named = SHAPES if stage in CLIPS - {"video_shard"} else RUN if stage in ("sanity", "step_time") else ()
        named = (
            MODEL
            if stage
            in (
                "features",
                "rerank",
                "order_controls",
                "probes",
                "cosines",
                "zero_shot",
                "export_vectors",
                "efficiency",
            )
            else named
        )
        named = tuple(map(module_of, all_analyses())) if stage in ("tables", "page") else named
        named = (MODELS.full_name("chance"), *RUN[1:]) if stage == "untrained_run" else named
        named = (MODELS.full_name("clip_only"), *MODEL[1:]) if stage == "blind_run" else named
        heads = [HEADS.full_name("meanP")] if set(named) & set(MODEL) else []
        chosen = CodeDependencies([*named, *heads], items="videos" if stage == "video_shard" else "")
        found[stage] = identity.parts(stage, chosen)
    return found


class Checkout:
    """A copy of the code, and which stages an edit makes stale."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("src", "workflow"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        self.identity = StageCode(library=self.folder / "src/rewind")
        self.before = identities(self.identity)

    def now(self, edited: str = "") -> dict[str, dict[str, str]]:
        """Identities in a fresh reading of an edited module, or of all."""
        fresh = StageCode(library=self.folder / "src/rewind")
        if edited:
            name = ".".join(Path(edited).relative_to("src").with_suffix("").parts)
            fresh.reader._read = {known: read for known, read in self.identity.reader._read.items() if known != name}
        return identities(fresh)

    def stale(self, path: str, edit: Callable[[str], str]) -> set[str]:
        file = self.folder / path
        text = file.read_text()
        assert edit(text) != text, path
        file.write_text(edit(text))
        after = self.now(path if path.startswith("src/") else "")
        file.write_text(text)
        return {stage for stage, parts in self.before.items() if parts != after[stage]}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout(tmp_path_factory.mktemp("checkout"))


def replaced(old: str, new: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return edit


def comment(text: str) -> str:
    return text + "\n# an edit\n"


def docstring(text: str) -> str:
    start = ast.parse(text).body[0]
    assert isinstance(start, ast.Expr), "a module begins with its docstring"
    return '"""Said otherwise."""\n' + "\n".join(text.splitlines()[start.end_lineno :]) + "\n"


def new_source(text: str) -> str:
    """A further data format among the keys."""
    own = 'class ZipSource(SourceConfig):\n    format: Literal["zip"]\n\n    def files(self):\n        return []\n\n\n'
    text = replaced("class ModuleSource(", own + "class ModuleSource(")(text)
    return replaced("    | EmbeddingsSource\n", "    | EmbeddingsSource\n    | ZipSource\n")(text)


@pytest.mark.slow
@pytest.mark.parametrize("edit", [comment, docstring])
def test_comments_and_docstrings_make_nothing_stale(checkout, edit):
    files = sorted(
        path for name in ("src/rewind", "workflow/scripts") for path in (checkout.folder / name).rglob("*.py")
    )
    texts = {path: path.read_text() for path in files}
    for path, text in texts.items():
        if path.name != "__init__.py":
            path.write_text(edit(text))
    after = checkout.now()
    for path, text in texts.items():
        path.write_text(text)
    assert after == checkout.before


@pytest.mark.parametrize(
    ("path", "edit"),
    [
        ("src/rewind/config/report.py", replaced("rounds: int", "rounds_of_steps: int")),
        ("src/rewind/config/dataset.py", new_source),
        ("src/rewind/config/dataset.py", replaced("has no reverse captions", "names no reverse captions")),
        ("src/rewind/config/study.py", replaced("{who} is evaluated on it", "{who} is tested on it")),
        (
            "src/rewind/config/report.py",
            replaced(
                'class Tables(ConfigModel, affects="report"):', "class Tables(ConfigModel):\n    extra: int = 3\n"
            ),
        ),
        ("src/rewind/errors.py", replaced("MAX_LISTED_LINES = 10", "MAX_LISTED_LINES = 12")),
        ("src/rewind/progress.py", replaced("every: float = 5.0", "every: float = 1.0")),
        ("src/rewind/provenance.py", replaced('"torchvision",', "")),
        (
            "src/rewind/training/run.py",
            replaced('"run": training_job.name,', '"run": training_job.name, "mood": "good",'),
        ),
        ("src/rewind/loading/splits.py", replaced("def check_splits(", "def check_splits_(")),
        ("src/rewind/gpu.py", replaced("def lease_gpus(", "def lease_gpus_(")),
        ("src/rewind/workflow/job.py", replaced("def requested_resources(", "def requested_resources_(")),
        ("src/rewind/job_values.py", replaced("def get(", "def get_(")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_keys_messages_and_plumbing_make_nothing_stale(checkout, path, edit):
    assert checkout.stale(path, edit) == set()


def test_what_trains_makes_training_stale(checkout):
    edit = replaced("falling = 0.5 *", "falling = 0.4 *")
    assert checkout.stale("src/rewind/training/optim.py", edit) == TRAINED | {"untrained_run"}
    stale = checkout.stale("src/rewind/losses/infonce.py", replaced("/ 2)", "/ 3)"))
    assert stale == TRAINED | {"untrained_run"}, "a blind baseline is fitted in closed form"


def test_an_edit_of_a_head_retrains_that_head_alone(checkout):
    edit = replaced("        return x + frames\n\n    def start_from", "        return x\n\n    def start_from")
    assert checkout.stale("src/rewind/models/heads/clip4clip.py", edit) == {"train seqTransf", "similarity seqTransf"}
    parts = checkout.before["train seqTransf"]
    assert (
        "rewind.models.heads.clip4clip:SeqTransf.forward" in parts
        and "rewind.models.heads.clip4clip:Block.attend" in parts
    )


def test_what_makes_clips_makes_clips_stale(checkout):
    edit = replaced('"format", "yuv420p"', '"format", "yuv444p"')
    assert checkout.stale("src/rewind/video/transcode.py", edit) == {"video_shard", "clip"}
    edit = replaced("Resampling.BICUBIC", "Resampling.BILINEAR")
    assert checkout.stale("src/rewind/video/images.py", edit) == {"image"}, "a data set of clips makes no images"


def test_what_reads_cifar_counts_where_it_is_read(checkout):
    edit = replaced("def read_cifar10(", "def read_cifar10(_=0, *, ")
    assert checkout.stale("src/rewind/data/formats/cifar10.py", edit) == {"train zero-shot", "zero_shot"}


ENTRY = '    Metric("hits@3", "hits@3 in percent", PERCENT, hits(3)),\n'
SCORED = {"similarity meanP", "similarity seqTransf"}
REPORTS = {"tables", "figures", "page", "group_results", "group_figure"}


def test_a_further_metric_is_computed_and_trains_nothing(checkout):
    edit = replaced('    Metric("MRR"', ENTRY + '    Metric("MRR"')
    stale = checkout.stale("src/rewind/ranking_metrics.py", edit)
    assert stale == {
        "ranks",
        *RUNS,
        "statistics",
        *(name for name, rule in analysis_rules().items() if rule.own_metrics),
        "control",
        *REPORTS,
    } and not stale & (TRAINED | SCORED)
    trained = {
        part for stage in TRAINED for part in checkout.before[stage] if part.startswith("rewind.ranking_metrics:")
    }
    assert trained == {
        f"rewind.ranking_metrics:{name}"
        for name in (
            "expected_worth",
            "hits",
            "reciprocal_rank",
            "median_rank_with_ties",
            "ROUNDING_TOLERANCE",
            "BINARY_GALLERY",
        )
    }
    edit = replaced("MRR is the mean reciprocal rank", "MRR is the mean of 1/rank")
    assert not checkout.stale("src/rewind/ranking_metrics.py", edit) & (TRAINED | SCORED)


def test_what_validation_computes_makes_training_stale(checkout):
    stale = checkout.stale("src/rewind/ranking_metrics.py", replaced("return 1 / ranks", "return 2 / ranks"))
    assert {*TRAINED - {"step_time"}, "ranks"} < stale, "steps are timed without validation"
    assert not stale & SCORED


def test_words_of_tables_are_what_tables_are(checkout):
    unread = replaced("def planned_tables(", "_EXTRA = 1\n\n\ndef planned_tables(")
    assert checkout.stale("src/rewind/report/tables.py", unread) == set(), "nothing reads it"
    said = replaced("In brackets {confidence_percent", "Brackets: {confidence_percent")
    shown = {"tables", "page"}  # they ask every analysis what it has to show
    assert checkout.stale("src/rewind/tables/notes.py", said) == shown
    assert checkout.stale("src/rewind/analyses/gap.py", replaced("the same runs", "equal runs")) == shown
    assert checkout.stale("src/rewind/analyses/gap.py", replaced('"table_gap"', '"table_of_gaps"')) == shown
    caption = replaced("Bars: {100 *", "Spread: {100 *")
    assert checkout.stale("src/rewind/analyses/order.py", caption) == shown, "of a picture, on the page"


def test_a_job_that_reads_another_parameter_is_stale(checkout):
    edit = replaced("params.dataset, run, params.setting, keys", "params.dataset, run, params.settings, keys")
    assert checkout.stale("workflow/scripts/examples.py", edit) == {"examples"}


def test_a_state_goes_on_over_edits_that_do_not_count_and_over_no_others(checkout, tmp_path):
    def state(parts: dict[str, str]) -> StateFile:
        job = TrainingJob(
            "seqTransf/seed0", spec(), 0, tmp_path, "none", 2, tmp_path / "state.pt", compute_code_hash("train", parts)
        )
        return job.state_file()

    def spec() -> RunSpec:
        backbone = Backbone(architecture="config/models/tiny.json")
        return RunSpec(backbone=backbone, frames=Frames(), text=Text(), evaluation=Evaluation(), method=Method())

    (tmp_path / "captions").mkdir()
    for name in ("items.csv", "captions/none_train.csv", "captions/none_valid.csv"):
        (tmp_path / name).write_text("")
    state(checkout.before["train seqTransf"]).save({"epoch": 3})
    path = checkout.folder / "src/rewind/models/heads/clip4clip.py"
    text = path.read_text()
    path.write_text(docstring(comment(text)).replace("a clip of {count} frames", "{count} frames"))
    words = checkout.now("src/rewind/models/heads/clip4clip.py")["train seqTransf"]
    path.write_text(text.replace("return x + frames", "return x"))
    other = checkout.now("src/rewind/models/heads/clip4clip.py")["train seqTransf"]
    path.write_text(text)
    assert state(words).load() == {"epoch": 3}
    assert state(other).load() is None and (tmp_path / "state.other.pt").is_file()


def rules() -> dict[str, str]:
    """Rules of the workflow that run a job, as they are named, with their text; those that inherit from another too."""
    begun = re.split(r"^(?:use rule \w+ as |rule |checkpoint )(\w+)(?: with)?:$", rules_text(), flags=re.M)
    return dict(zip(begun[1::2], begun[2::2], strict=True))


def test_every_rule_runs_its_script_under_its_own_name_and_under_a_modules_prefix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = []
    monkeypatch.setattr("runpy.run_path", lambda path, **_: ran.append(Path(path)))
    assert rules().keys() == RULES.keys()
    for rule, text in rules().items():
        act = re.search(r"^        act=\"(\w+)\"", text, re.M)
        inherited = RULES[rule].script if rule in INHERITING else ""
        assert (act[1] if act else "") == inherited, f"{rule}: says whose code it runs, if not its own"
        script = f"{RULES[rule].script or rule}.py"
        assert f'"../scripts/{script}"' in text or act, rule
        for name in (rule, f"a_module_{rule}"):
            run_script(Job(name, NamedList([], {}), Outputs([], {}), NamedList([], {}), {}, 1, {}, "log"))
            assert ran[-1] == ROOT / "workflow/scripts" / script, name
        assert code_roots(rule)[0] == (RULES[rule].function or f"rewind.scripts.{script.removesuffix('.py')}")
    assert {path.name for path in (ROOT / "workflow/scripts").glob("*.py")} == {path.name for path in ran}
    own = RULES.keys() - INHERITING  # others say whose code they run
    assert not [(one, other) for one in own for other in RULES if other.endswith(f"_{one}")], (
        "a prefix would mix them up"
    )
    used = Job("mine", NamedList([], {}), Outputs([], {}), NamedList([], {"act": "train"}), {}, 1, {}, "log")
    run_script(used)
    assert ran[-1].name == "train.py"
    with refusal():
        run_script(Job("mine", NamedList([], {}), Outputs([], {}), NamedList([], {}), {}, 1, {}, "log"))


def test_a_script_does_its_job_and_nothing_when_it_is_read_again():
    """As each further process of a job on several GPUs does."""
    for path in (ROOT / "workflow/scripts").glob("*.py"):
        docstring, *imports, job = ast.parse(path.read_text()).body
        assert isinstance(docstring, ast.Expr) and isinstance(job, ast.If), path
        assert all(isinstance(line, ast.Import | ast.ImportFrom) for line in imports), path
        assert ast.unparse(job.test) == "__name__ == '__main__'" and not job.orelse, path
        (frame,) = job.body
        assert isinstance(frame, ast.With), path
        assert [ast.unparse(item) for item in frame.items] == ["start_job(globals().get('snakemake')) as job"], path


def test_nothing_of_the_library_runs_when_it_is_imported():
    """An import counts by what is used of it: so it may do nothing else."""
    identity = StageCode()
    known = {"rewind.__main__", "rewind.workflow.staleness.normalise", "rewind.config.docs"}
    known |= {"rewind.encoders.tiny", "rewind.training.tracking"}  # commands of their own
    known |= {"rewind.config.load"}  # how YAML is read
    for path in sorted((ROOT / "src/rewind").rglob("*.py")):
        name = ".".join(["rewind", *path.relative_to(ROOT / "src/rewind").with_suffix("").parts])
        module = identity.reader.module(name.removesuffix(".__init__"))
        assert name in known or not (module.units["(import)"].parts or module.stars), name


def test_how_keys_become_parameters_is_no_code(checkout):
    edit = replaced('self, stage: Affects = "run",', 'self, stage: Affects = "scores",')
    assert checkout.stale("src/rewind/config/study.py", edit) == set()


def test_a_rule_of_a_module_is_known_under_its_prefix():
    assert (
        strip_rule_prefix("rewind_cosine_gap_figure") == "cosine_gap_figure" and strip_rule_prefix("train") == "train"
    )
    assert strip_rule_prefix("mine") == strip_rule_prefix("my_own") == ""


def test_whether_there_are_groups_is_no_part_of_clips_and_captions():
    """Every format that is asked before the first job is excepted, so that a new answer makes no run stale."""
    asked = [
        path.stem for path in (ROOT / "src/rewind/data/formats").glob("*.py") if "def has_groups(" in path.read_text()
    ]
    assert len(asked) >= 3 and all(is_ignored(f"rewind.data.formats.{name}:has_groups") for name in asked)
