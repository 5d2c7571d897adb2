"""What words alone say of a clip's direction: naive Bayes against scikit-learn's, and pairs that tell nothing."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from rewind.data.caption_direction import caption_log_odds, term_log_odds, words_alone_accuracy, words_and_bigrams

FORWARD = ["A door opens slowly.", "the cup fills up", "a man walks to the left"]
BACKWARD = ["A door closes slowly.", "the cup drains", "a man walks to the right and right"]


@pytest.mark.parametrize("pseudo_count", [0.1, 1.0, 3.0])
def test_log_odds_are_those_of_scikit_learns_naive_bayes(pseudo_count):
    vectorizer = CountVectorizer(analyzer=words_and_bigrams)
    counts = vectorizer.fit_transform([*FORWARD, *BACKWARD])
    theirs = MultinomialNB(alpha=pseudo_count, fit_prior=False).fit(counts, [0] * 3 + [1] * 3)
    ours = term_log_odds(FORWARD, BACKWARD, pseudo_count)
    assert set(ours) == set(vectorizer.vocabulary_)
    texts = [*FORWARD, *BACKWARD, "a cup closes to the left left", "unheard"]
    probability = theirs.predict_log_proba(vectorizer.transform(texts))
    expected = probability[:, 0] - probability[:, 1]
    assert [caption_log_odds(text, ours) for text in texts] == pytest.approx(expected, abs=1e-12)


def test_words_alone_find_the_side_that_always_sounds_alike():
    things = [f"thing{number}" for number in range(20)]
    accuracy = words_alone_accuracy([f"{t} opens" for t in things], [f"{t} closes" for t in things], things)
    assert accuracy == 100


def test_words_that_stand_on_both_sides_find_nothing():
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, 400)
    words = ("opens", "closes")
    forward, backward = ([f"it {words[side]}" for side in sides] for sides in (first, 1 - first))
    assert 40 < words_alone_accuracy(forward, backward, [str(n) for n in range(400)]) < 60


def test_pairs_of_equal_captions_count_one_half():
    same = [f"word{number}" for number in range(10)]
    assert words_alone_accuracy(same, same, same) == 50


def test_clusters_are_never_on_both_sides():
    """Each cluster has a word of its own that would give the answer away."""
    clusters = [str(number // 2) for number in range(40)]
    ways = np.random.default_rng(1).integers(0, 2, 20)
    forward = [f"c{c} {'in' if ways[int(c)] else 'out'}" for c in clusters]
    backward = [f"c{c} {'out' if ways[int(c)] else 'in'}" for c in clusters]
    assert words_alone_accuracy(forward, backward, clusters) < 75


def test_one_cluster_is_not_enough():
    assert np.isnan(words_alone_accuracy(["a"], ["b"], ["only"]))
