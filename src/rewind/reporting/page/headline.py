"""The head of the page: what was asked, the answer in sentences, and the picture of it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rewind.reporting.answer import Finding
from rewind.reporting.contest import listed
from rewind.reporting.footnotes import Footnotes, finished, seed_caution
from rewind.reporting.page.captions import over
from rewind.reporting.results import Results, directions
from rewind.reporting.searches import queries_sentence, short_sentence
from rewind.study import Study, comparing
from rewind.study.pretraining import by_seed, seeds, starts

Asked = list[tuple[str, list[str]]]
"""A term and what is said of it."""


def asked(study: Study, results: Results, facts: Footnotes) -> Asked:
    """Settings, methods, seeds, and what decides.

    Args:
        study: its file.
        results: its numbers.
        facts: ``settings``, ``items`` and ``family`` of it.
    """
    settings = study.evaluation.settings
    ways = dict.fromkeys(way for setting in settings for way in directions(results, setting))
    searches = [queries_sentence(facts, setting, tuple(directions(results, setting))) for setting in settings]
    searches += [short_sentence(facts, [*ways])] if len(ways) > 1 else []
    rows = [
        ("Settings", finished(searches)),
        ("Methods", finished(_methods(results))),
        ("Seeds", finished(_seeds(study, results))),
        ("Decided by", finished(_decided(study, results, facts))),
    ]
    return [(term, said) for term, said in rows if said]


def headline(rows: Asked, found: Sequence[Finding], picture: str) -> str:
    """The block's content; ``picture`` is a figure element, or empty."""
    terms = "\n".join(
        f"<dt>{escape(term)}</dt><dd>{'<br>'.join(escape(sentence) for sentence in said)}</dd>" for term, said in rows
    )
    return (
        f'<div class="headline">\n<div class="findings">\n{"".join(map(_finding, found))}</div>\n'
        f'<div class="context">\n{picture}\n<h3>What was asked</h3>\n'
        f'<dl class="asked-for">\n{terms}\n</dl>\n</div>\n</div>'
    )


def _finding(found: Finding) -> str:
    """The first sentence stands out."""
    parts = [("lead", found.sentences[:1]), ("more", found.sentences[1:]), ("faint", found.remarks)]
    said = "".join(
        f'<p class="{kind}">{" ".join(map(escape, sentences))}</p>' for kind, sentences in parts if sentences
    )
    return f'<div class="finding"><h3>{escape(found.heading)}</h3>{said}</div>\n'


def _methods(results: Results) -> list[str]:
    names = results.labels
    trained = results.trained()
    fixed = [method for method in results.compared() if method not in trained]
    rest = [method for method in names if method in results.baselines]
    return [
        f"{what}: {listed([names[method] for method in group])}"
        for what, group in (("trained", trained), ("not trained", fixed), ("baselines, not tested", rest))
        if group
    ]


def _seeds(study: Study, results: Results) -> list[str]:
    groups: dict[str, list[str]] = {}
    towers = [name for name, method in study.methods.items() if by_seed(study) and starts(method)]
    for name in study.trained() or towers:
        listed_seeds = ", ".join(map(str, study.methods[name].seeds or study.seeds))
        groups.setdefault(listed_seeds, []).append(results.labels[name])
    if not groups:
        return ["none: nothing is trained"]
    counts = sorted({len(study.methods[name].seeds or study.seeds) for name in study.trained()})
    said = [f"{each} ({', '.join(names)})" if len(groups) > 1 else each for each, names in groups.items()]
    more = f"Pre-training seeds: {', '.join(map(str, seeds(study)))}" if by_seed(study) else ""
    return ["; ".join(said), more, seed_caution(counts)]


def _decided(study: Study, results: Results, facts: Footnotes) -> list[str]:
    names = dict.fromkeys("accuracy" if s == "binary" else results.deciding(s) for s in study.evaluation.settings)
    several = "binary" in study.evaluation.settings and len(names) > 1
    metric = f"{comparing.primary(study)}, in Binary accuracy" if several else next(iter(names))
    level = f"{1 - results.confidence:.3g}"
    tested = len(results.pairs) and results.pairs["p_holm"].notna().any()
    pairs = f"{facts.family:,} {'pair' if facts.family == 1 else 'pairs'}" if facts.family else ""
    test = f"significant: p < {level} after Holm’s correction over {pairs}" if tested and pairs else ""
    return [
        "; ".join(filter(None, [metric, test])),
        f"In brackets {100 * results.confidence:g}% intervals over {over(study)}, not adjusted for multiple "
        "comparisons",
        f"All numbers are {results.given}" if results.given else "",
    ]
