"""What training and scoring of a whole study will take, from a few measured steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from rewind.models.heads import HEADS
from rewind.rehearsal import work
from rewind.rehearsal.data import Counts
from rewind.rehearsal.measure import Job, Steps
from rewind.study import Method, Study, Training
from rewind.study.pretraining import own_backbone

BACKWARD = 2  # a backward pass in forward passes
PAIR_SECONDS = 1.5e-7  # in which one score finds its place: `benchmarks/brought.py` on 2 cores; few pairs cannot tell
GUESS_TFLOPS = 100.0  # that one GPU sustains, if nobody says: about a third of an A100's or L40S's peak in bf16


@dataclass
class Rates:
    """Steps of every method of a study, and what is asked of them.

    Attributes:
        study: the real study.
        counts, rehearsed: of its data set, in whole and in the rehearsal.
        steps: measured steps by method; ``pretraining`` has those of the pre-training.
        gpus: GPUs that the whole study will have.
        tflops: that one of them sustains, for steps that no GPU here has timed.
        share: of its visual layers that the rehearsed tower had.
        missing: parameters that it had not.
        cores: that the whole study will have.
        threads: CPU threads that the rehearsal's jobs had, and ``pretraining``'s where they are others.
        guesses: what the numbers rest on besides measurement; filled while they are asked for.
    """

    study: Study
    counts: Counts
    rehearsed: Counts
    steps: dict[str, Steps]
    gpus: int
    tflops: float
    share: float
    missing: int
    cores: int
    threads: dict[str, int]
    guesses: dict[str, None] = field(default_factory=dict)

    def guess(self, said: str) -> None:
        self.guesses[said] = None

    def of(self, method: str) -> Steps | None:
        """Steps of a method, or else of one that is likely slower than none."""
        return self.steps.get(method) or next(iter(self.steps.values()), None)

    def training(self, job: Job, method: str, keys: Training, frames: int, rows: int, valid: int) -> float:
        """Seconds of a whole training job.

        Args:
            job: the rehearsed one.
            method: whose steps it makes.
            keys: the real keys of its training.
            frames: that it sees of a clip.
            rows: captions of an epoch.
            valid: items of its validation.
        """
        steps = self.of(method)
        if steps is None:
            return job.seconds
        batch = min(keys.batch.size, max(rows, 1))
        item, pair = self.forward(steps, self._method(method), keys, frames)
        step = (1 + BACKWARD) * (batch * item + batch**2 * pair)
        few = self.rehearsed.items.get("valid", 0)
        validation = max(0, valid - few) * item + max(0, valid**2 - few**2) * pair
        fixed = max(0.0, job.seconds - (steps.trained if job.rule != "sanity" else 0.0))
        validations = -(-keys.epochs // keys.evaluate_every)
        return fixed + keys.epochs * max(1, rows // batch) * step + validations * validation

    def forward(self, steps: Steps, method: Method, keys: Training, frames: int) -> tuple[float, float]:
        """Seconds that an item and its caption, and a pair of both, take in a forward pass of the whole study."""
        flops = self.pixels(method, keys, frames)
        if self.gpus and not steps.gpus:
            if flops:
                self.guess(
                    f"a GPU sustains {self.tflops:g} TFLOP/s (--gpu-tflops) in the visual tower, and the rest takes no "
                    "time; there was no GPU to time"
                )
                return flops / (self.tflops * 1e12), 0.0
            self.guess("steps on cached features and vectors take as long on a GPU as on this CPU")
        share = self.share if flops else 1.0
        if share < 1:
            self.guess("a tower's time is proportional to its layers, of which the rehearsal used few")
        pairs = self._pairs(steps, method)
        each = self._evenly(method) * frames / max(1, steps.frames) / (1 + BACKWARD)
        return each * (steps.seconds - pairs) / steps.rows / share, each * pairs / steps.rows**2

    def _pairs(self, steps: Steps, method: Method) -> float:
        """Seconds of a step in which a head scored pairs: what the fastest method without such a head does not need."""
        if not pairwise(method):
            return 0.0
        self.guess("the extra time of a head that scores pairs grows with the square of the batch size")
        others = [
            s for name, s in self.steps.items() if name in self.study.methods and not pairwise(self._method(name))
        ]
        return max(0.0, steps.seconds - min((s.seconds / s.rows * steps.rows for s in others), default=0.0))

    def _evenly(self, method: Method) -> float:
        """What more threads than the rehearsal had make of a step's time."""
        own = self.study.pretraining is not None and method is self.study.pretraining.method
        asked = self.study.pretraining.threads if own else None
        whole = min(asked or self.study.resources.threads, self.cores)
        had = self.threads["pretraining" if own else "runs"]
        if whole != had:
            self.guess(f"{whole} threads are faster than the rehearsal's {had} in proportion to their number")
        return had / whole

    def pixels(self, method: Method, keys: Training, frames: int) -> float:
        """FLOPs of the visual tower for one item, where a method learns from pixels through a tower of known size."""
        if "visual" in keys.freeze or method.noise:
            return 0.0
        backbone = own_backbone(method) or self.study.backbone.model_dump()
        return work.per_item(backbone, frames, self.study.frames.size) or 0.0

    def scoring(self, job: Job, items: int, rehearsed: int, frames: int) -> float:
        """Seconds of a job that encodes items with a run's model and scores pairs."""
        steps, method = self.of(job.method), self._method(job.method)
        if steps is None or method.baseline:
            return job.start + job.inside * max(1.0, items / max(1, rehearsed)) ** (0.5 if method.baseline else 1.0)
        item, pair = self.forward(steps, method, method.training, frames)
        return job.seconds + max(0, items - rehearsed) * item + max(0, items**2 - rehearsed**2) * pair

    def ranking(self, job: Job, pairs: float, rehearsed: float) -> float:
        """Seconds of a job that ranks a run's scores, of which a rehearsal has too few to time."""
        self.guess(f"a score is ranked in {PAIR_SECONDS * 1e6:g} µs")
        return job.seconds + max(0.0, pairs - rehearsed) * PAIR_SECONDS

    def _method(self, name: str) -> Method:
        if name == "pretraining":
            return self.study.pretraining.method
        return self.study.methods.get(name) or next(iter(self.study.methods.values()))


def pairwise(method: Method) -> bool:
    """Whether a method's head scores pairs."""
    return method.model == "clip4clip" and bool(getattr(HEADS.get(method.head), "pairwise", False))


def rows_of_epoch(keys: Training, counts: Counts) -> int:
    """Captions that an epoch sees."""
    return (counts.captions if keys.batch.captions == "all" else counts.items).get("train", 0)
