"""What a study is for: its tables, figures and page, and what they are made from."""

from __future__ import annotations

from pathlib import Path

from rewind.report.page.document import assets_hash
from rewind.tables.render import templates_hash
from rewind.workflow.plan.extras import submission_captions
from rewind.workflow.plan.files import Files
from rewind.workflow.plan.study import StudyPlan
from rewind.workflow.plan.training import choice_files

PICTURES = ("intervals", "intervals_column", "pairs", "gap", "training_curves", "rank_curve", "ranks")  # of every study
PICTURES_OF_A_RUN = ("examples", "heatmap", "embedding")
DRAWN_OF_A_RUN = ("heatmap", "embedding")  # also as SVG


def targets(plan: StudyPlan) -> list[str]:
    """Its tables, its pictures, and the page that holds them."""
    folder = plan.folder
    return [
        f"{folder}/tables",
        f"{folder}/figures/intervals.png",
        f"{folder}/figures/examples.png",
        *(f"{folder}/figures/{method}/examples.png" for method in plan.keys.also_pictured()),
        f"{folder}/report.html",
        *(f"{folder}/figures/{name}.png" for name in plan.analysis_pictures()),
    ]


def targets_on_request(plan: StudyPlan) -> list[str]:
    """What only those get who ask for it by name: files for TREC's tools, costs, a submission."""
    targets = [f"{plan.folder}/trec"]
    translators = [name for name in plan.keys.trained() if plan.method(name).model == "translator"]
    if translators:
        targets.append(f"{plan.folder}/efficiency")
    if translators and submission_captions(plan):
        seed = next(seed for method, seed in plan.keys.runs() if method == translators[0])
        targets.append(f"{plan.folder}/submission/{translators[0]}.seed{seed}.csv")
    return targets


def result_files(plan: StudyPlan) -> Files:
    """What tables, figures and the page are all made from."""
    files = {
        "metrics": plan.metrics_file,
        "ranks": plan.rank_files(),
        "said": plan.run_metrics(),
        "intervals": f"{plan.folder}/statistics/intervals.csv",
        "pairs": f"{plan.folder}/statistics/pairs.csv",
        "gaps": f"{plan.folder}/statistics/gaps.csv",
        "places": f"{plan.folder}/statistics/ranks.csv",
        "chance": f"{plan.folder}/statistics/chance.csv",
        "best": plan.best_file,
        "videos": f"{plan.dataset.folder}/videos/report.csv",
    }
    for analysis in plan.analyses():
        results = {name: one for name, one in analysis.results.items() if one.applies(plan)}
        files |= {name: f"{plan.folder}/{result.file}" for name, result in results.items()}
    if plan.keys.pretraining:
        files["pretraining"] = plan.pretraining_records()
    return files


def table_files(plan: StudyPlan) -> Files:
    """What only some studies' tables show, and their answer says."""
    files = Files()
    if trials := [Path(path).with_name("trials.csv").as_posix() for path in choice_files(plan, plan.runs())]:
        files["trials"] = list(dict.fromkeys(trials))
    return files


def _pictures(plan: StudyPlan) -> tuple[str, ...]:
    """Names of the pictures of all runs."""
    return (*PICTURES, *plan.analysis_pictures())


def page_pictures(plan: StudyPlan) -> list[str]:
    twins = ("twin_examples",) * ("binary" in plan.keys.evaluation.settings)
    return [f"{plan.folder}/figures/{name}.png" for name in _pictures(plan) + twins + PICTURES_OF_A_RUN]


def twin_similarity(plan: StudyPlan) -> list[str]:
    """The matrices of the first seed of every compared method, in the order of :func:`twin_methods`."""
    return [pictured_similarity(plan, method) for method in plan.keys.compared_with_twins()]


def twin_methods(plan: StudyPlan) -> list[str]:
    """Names of those methods in tables."""
    return [plan.label(method) for method in plan.keys.compared_with_twins()]


def pictured_label(plan: StudyPlan) -> str:
    """What tables call the method that pictures show."""
    return plan.label(plan.keys.pictured()[0])


def page_drawings(plan: StudyPlan) -> list[str]:
    """Pictures of the page as SVG."""
    return [f"{plan.folder}/figures/{name}.svg" for name in _pictures(plan) + DRAWN_OF_A_RUN]


def table_templates(plan: StudyPlan) -> str:
    """A hash of the templates of tables."""
    return templates_hash()


def page_assets(plan: StudyPlan) -> str:
    """A hash of the page's templates, style and script."""
    return assets_hash()


def pictured_similarity(plan: StudyPlan, method: str | None = None) -> str:
    """The matrix of the run that pictures show, or of a method's first seed."""
    name, seed = plan.keys.pictured(method)
    return f"{plan.folder}/similarity/{name}/seed{seed}.npz"


def pictured_vectors(plan: StudyPlan, method: str | None = None) -> str:
    name, seed = plan.keys.pictured(method)
    return f"{plan.folder}/embedding/{name}.seed{seed}.npz"


def pictured_run(plan: StudyPlan, method: str | None = None) -> str:
    """What pictures of one run call it."""
    name, seed = plan.keys.pictured(method)
    return ", ".join([name, f"seed {seed}", *filter(None, [plan.keys.condition])])


def pictured_setting(plan: StudyPlan) -> str:
    """The gallery that examples search: with twins where there are any."""
    settings = list(plan.keys.evaluation.settings)
    return ([setting for setting in ("hard", "origin", "test") if setting in settings] or settings)[0]


def thumbnail_size(plan: StudyPlan) -> int:
    return min(plan.keys.frames.size, 112)
