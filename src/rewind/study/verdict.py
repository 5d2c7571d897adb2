"""The keys of the verdict: what counts as a win over a baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from rewind.study.keys import Keys, key, required

CLAIMED = ("R@1", "R@5")
"""Metrics in which a win can be claimed; both in percent."""


class Verdict(Keys):
    """Which methods should beat which baseline, at what cost, and where their gain should shrink."""

    baseline: str = required("The baseline that the methods have to beat.")
    methods: list[str] = required("Methods that should beat it, trained with the same seeds.", min_length=1)
    control: dict[str, str] = key(
        {},
        "For the baseline and for every method, its counterpart trained without the supposed cause of the gain "
        "(topical batches); there the gain over the baseline should be smaller. Empty: no control.",
    )
    max_slowdown: float = key(
        0.10, "Largest tolerated slowdown of a training step, relative to the baseline.", ge=0, le=10
    )
    setting: Literal["origin", "hard", "test"] | None = key(
        None, f"Setting whose {' and '.join(CLAIMED)} are compared; the first of `evaluation.settings` if empty."
    )
    requires: list[Literal["zero_shot", "spread"]] = key(
        [],
        "What a win needs besides: `zero_shot`, a significant gain in the accuracy of `evaluation.zero_shot`; "
        "`spread`, scores that certainly differ less between seeds. Both are shown in any case.",
        before=[],
    )
    rounds: int = key(30, "Rounds of timing; in each, every method makes two training steps in turn.", ge=5, le=1000)

    def faults(
        self,
        trained: Sequence[str],
        seeds: Mapping[str, list[int]],
        pairs: Sequence[tuple[str, str]],
        settings: Sequence[str],
        compute: Mapping[str, Mapping[str, Any]],
    ) -> Iterator[str]:
        """What does not fit the study, each with its key.

        Args:
            trained: the study's methods that are trained.
            seeds: of each method.
            pairs: that are compared.
            settings: that are evaluated.
            compute: what each method computes with, key → value: steps are compared at equal compute.
        """
        where = "tables.verdict"
        named = {"baseline": [self.baseline], "methods": self.methods, "control": list(self.control.values())}
        for name, methods in named.items():
            for odd in (method for method in methods if method not in trained):
                yield f"{where}.{name}: no trained method {odd!r}; there are {', '.join(trained)}"
        if self.baseline in self.methods or len(set(self.methods)) < len(self.methods):
            yield f"{where}.methods: each method once, without the baseline {self.baseline!r}"
        yield from self._control_faults(where)
        if self.where(settings) not in settings or self.where(settings) == "binary":
            yield f"{where}.setting: {self.where(settings)!r} is not evaluated, or is no ranked setting"
        tested = {frozenset(pair) for pair in pairs}
        for method in self.methods:
            if method not in trained or self.baseline not in trained or method == self.baseline:
                continue  # told above
            if sorted(seeds[method]) != sorted(seeds[self.baseline]):
                yield f"{where}.methods: {method!r} and {self.baseline!r} have different seeds"
            if frozenset((method, self.baseline)) not in tested:
                yield f"{where}.methods: statistics.pairs does not compare {method!r} with {self.baseline!r}"
            for name, theirs in compute[self.baseline].items():
                if (ours := compute[method][name]) != theirs:
                    yield (
                        f"{where}.methods: {method!r} has {name}: {ours}, {self.baseline!r} has {theirs}; steps can "
                        "only be compared at equal compute"
                    )

    def _control_faults(self, where: str) -> Iterator[str]:
        if not self.control:
            return
        wanted = [self.baseline, *self.methods]
        if lacking := [method for method in wanted if method not in self.control]:
            yield f"{where}.control: the counterpart of {lacking[0]!r} is missing"
        if odd := [method for method in self.control if method not in wanted]:
            yield f"{where}.control: {odd[0]!r} is neither the baseline nor one of the methods"
        if len(set(self.control.values()) | set(wanted)) < 2 * len(set(wanted)):
            yield f"{where}.control: every counterpart must be a method of its own"

    def where(self, settings: Sequence[str]) -> str:
        """The setting that counts."""
        return self.setting or settings[0]
