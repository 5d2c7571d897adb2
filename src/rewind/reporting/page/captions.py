"""What is said under the pictures of the page."""

from __future__ import annotations

from collections.abc import Mapping

from rewind.study import Study, comparing
from rewind.study.pretraining import by_seed, condition, seeds

EMBEDDINGS = {"pca": "the first two principal components", "tsne": "t-SNE", "umap": "UMAP"}


def over(study: Study) -> str:
    """What the primary intervals of a study are over."""
    trained = study.trained()
    if not trained and not by_seed(study):
        what = "only the backbone" if study.pretraining else "nothing"
        return f"other queries ({what} is trained, so there are no training seeds)"
    if not trained and len(seeds(study)) > 1:
        return "other seeds of the pre-training and other queries"
    if all(len(study.methods[method].seeds or study.seeds) == 1 for method in trained):
        return "other queries only (one training seed)"
    return "other training seeds and other queries"


def captions_of(study: Study, labels: Mapping[str, str]) -> dict[str, str]:
    """Name of a picture's file → its caption."""
    method, seed = study.pictured()
    run = f"{labels[method]}, seed {seed}" if method in study.trained() else labels[method]
    confidence = f"{100 * study.statistics.confidence:g}%"
    given, metric = condition(study), comparing.drawn(study)
    said = {
        "intervals": f"{metric} of every method. Broad bar: {confidence} interval over {over(study)}; thin line: "
        "bootstrap over queries with these checkpoints fixed. Numbers: the estimates.",
        "pairs": f"Difference in {metric} of every declared pair, with the same two intervals. Filled squares are "
        "significant after Holm's correction over the declared pairs; the intervals are not adjusted.",
        "gap": "Left: R@1 of the same queries in Origin's gallery and in Hard's, which includes the reversed twins. "
        "Right: the mean difference within runs, with its intervals.",
        "cosine_gap": "Cosines of test captions with their own clips (pairs) and with those of other clusters "
        "(others), all seeds together, each scaled to the same height. Bars: the means; their distance is the cosine "
        "gap. Pair-conditioned vectors have seen the answer.",
        "training_curves": "Validation recall and training loss, mean over seeds; the band spans the seeds.",
        "batches": "Left: share of batches drawn from one topic. Middle: share of the most frequent cluster in an "
        "average batch. Right: number of captions in the largest cluster; clusters follow the current text vectors.",
        "rank_curve": "Share of test queries whose true item is among the first k (expected value over ties).",
        "ranks": "Compared methods from best to worst in the deciding metric of each setting. Bar: the interval of a "
        f"place, {confidence} for all places at once; it leaves out methods that are shown to be better or worse. Dot: "
        "the place by the mean, filled where the interval is that place alone.",
        "examples": f"What captions found with {run}. They are chosen by outcome, as stated in the figure.",
        "heatmap": f"Similarities of {run}. Every row is a caption, standardised over all test items. The true item "
        "is on the diagonal; a frame marks a clip and its twin.",
        "embedding": f"Captions and items of {run} in {EMBEDDINGS[study.figures.embedding]} of their vectors.",
    }
    line = f"{confidence} interval over {over(study)}, not adjusted for the number of groups"
    for setting in study.evaluation.settings:
        half = (
            " Dashed: chance. * and †: shown to be above and below it, after Holm's correction over all methods and "
            "groups that were tested."
            if setting == "binary"
            else ""
        )
        said[f"groups_{setting}"] = (
            f"{comparing.deciding(study)[setting] if not half else 'Accuracy'} in each group of captions. Line: {line}."
            + half
        )
    return {name: f"{text} {given.capitalize()}." if given else text for name, text in said.items()}
