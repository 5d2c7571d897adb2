"""What words alone say of a clip's direction: captions of clips against captions of the same clips played backwards.

Multinomial naive Bayes on words and pairs of neighbouring words, with equal priors. A caption's score is its log-odds
of being that of a clip as it was filmed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from rewind.data.tokenizers import MiniclipTokenizer

FOLDS = 5
PSEUDO_COUNT = 1.0


def words_and_bigrams(caption: str) -> list[str]:
    """Words of a caption, and its pairs of neighbouring words.

    >>> words_and_bigrams("A door opens.")
    ['a', 'door', 'opens', 'a door', 'door opens']
    """
    words = MiniclipTokenizer.words(caption)
    return [*words, *(" ".join(pair) for pair in itertools.pairwise(words))]


def term_log_odds(
    forward: Sequence[str], backward: Sequence[str], pseudo_count: float = PSEUDO_COUNT
) -> dict[str, float]:
    """Log of how much more likely each word and bigram is in captions of one kind than in those of the other.

    ``forward`` are captions of clips as they were filmed, ``backward`` of clips played backwards. ``pseudo_count`` is
    added to the count of every term in both (Lidstone's smoothing).

    >>> odds = term_log_odds(["a door opens"], ["a door closes"])
    >>> odds["opens"] > 0, odds["closes"] < 0, odds["door"]
    (True, True, 0.0)
    """
    counts = [
        Counter(term for caption in captions for term in words_and_bigrams(caption)) for captions in (forward, backward)
    ]
    terms = sorted(counts[0] | counts[1])
    # Counts + pseudo-count, divided by their sum, are the smoothed probabilities of terms.
    smoothed = np.array([[count[term] for term in terms] for count in counts], dtype=float) + pseudo_count
    log_probability = np.log(smoothed) - np.log(smoothed.sum(axis=1, keepdims=True))
    return dict(zip(terms, (log_probability[0] - log_probability[1]).tolist(), strict=True))


def caption_log_odds(caption: str, log_odds: Mapping[str, float]) -> float:
    """The sum over a caption's terms; unknown ones count nothing.

    >>> caption_log_odds("the door opens", {"opens": 1.5, "door": -0.25})
    1.25
    """
    return sum(log_odds.get(term, 0.0) for term in words_and_bigrams(caption))


def words_alone_accuracy(forward: Sequence[str], backward: Sequence[str], clusters: Sequence[str]) -> float:
    """Share of pairs whose forward caption words alone name, in percent; a tie counts one half.

    Cross-validated: the pairs of a cluster are judged by a model that was fitted on other clusters. NaN with fewer than
    two clusters.

    >>> opens, closes = [f"{thing} opens" for thing in "abcdef"], [f"{thing} closes" for thing in "abcdef"]
    >>> words_alone_accuracy(opens, closes, list("abcdef"))
    100.0
    """
    names = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    if len(names) < 2:
        return float("nan")
    fold = np.array([names[cluster] % min(FOLDS, len(names)) for cluster in clusters])
    right = np.zeros(len(forward))
    for left_out in np.unique(fold):
        rest = np.flatnonzero(fold != left_out).tolist()
        odds = term_log_odds([forward[row] for row in rest], [backward[row] for row in rest])
        for row in np.flatnonzero(fold == left_out).tolist():
            difference = caption_log_odds(forward[row], odds) - caption_log_odds(backward[row], odds)
            right[row] = (np.sign(round(difference, 9)) + 1) / 2  # sums of the same terms differ in their last bits
    return 100 * float(right.mean())
