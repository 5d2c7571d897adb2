"""Plant one fault at a time in a copy of the library, and report which of them the tests find.

    python benchmarks/seeded_faults.py                 # all, each against the tests of its own part first
    python benchmarks/seeded_faults.py --only ranking sanw
    python benchmarks/seeded_faults.py --list

Every fault is one that somebody might make: a sign, a tie counted as a hit, an unread mask, a skipped checksum. Each is
planted alone, as text in a file, and the tests that should notice run in a process of their own; if these pass, all
fast tests run. A fault that no test finds is a gap in the tests: the command ends with 1 and names it. Run it before a
release, and add a fault wherever a bug got through.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIME_LIMIT = 1200  # seconds for the whole fast suite; a fault may also make a test hang


@dataclass(frozen=True)
class Fault:
    """A fault, as a piece of text that is replaced.

    Attributes:
        name: short, one of a kind.
        path: of the file, from ``src/rewind``.
        old: text that occurs in the file once.
        new: what stands there instead.
        tests: names of test files, without ``test_`` and suffix, that should find it.
        means: what is wrong then.
    """

    name: str
    path: str
    old: str
    new: str
    tests: str
    means: str


FAULTS = (
    # Configuration and data
    Fault(
        "binary-decides-by-primary",
        "config/study.py",
        'ACCURACY_METRIC if setting == "binary" else primary for',
        'primary if setting == "binary" else primary for',
        "comparing groups",
        "Binary is decided by R@1's own name",
    ),
    Fault(
        "unknown-key-passes",
        "config/base.py",
        'extra="forbid"',
        'extra="ignore"',
        "study signature",
        "a misspelt key does nothing",
    ),
    Fault(
        "split-overlap-passes",
        "data/splits.py",
        'rows[rows["file"] != ""].drop_duplicates(["file", "split"])',
        'rows[rows["file"] != ""].drop_duplicates(["file"])',
        "leaks",
        "a file in train and test is not noticed",
    ),
    Fault(
        "captions-cut-without-end",
        "data/tokenizers.py",
        "[start, *words[: length - 2], end]",
        "[start, *words[: length - 1], end][:length]",
        "tokenizers",
        "a long caption has no end token",
    ),
    Fault(
        "rewrites-in-the-test",
        "data/formats/rtime.py",
        'if split == "train" else human',
        "if split else human",
        "rtime",
        "machine-made captions are searched with",
    ),
    # Video
    Fault(
        "twin-not-mirrored",
        "video/frames.py",
        "frames - 1 - indices[::-1] if reversed",
        "indices if reversed",
        "frames",
        "a twin shows the forward clip's choice of frames",
    ),
    Fault(
        "mask-of-padding",
        "video/frames.py",
        "mask[: len(indices)] = 1",
        "mask[:] = 1",
        "frames",
        "padding counts as frames",
    ),
    Fault(
        "crop-off-centre",
        "video/frames.py",
        "round((height - size) / 2.0), round((width",
        "0, round((width",
        "frames images",
        "the crop begins at the top",
    ),
    Fault(
        "row-checksum-skipped",
        "video/frame_store.py",
        "if zlib.crc32(pixels.data) != checksums[shard][row]:",
        "if False:",
        "store store_feeding",
        "damaged frames are trained on",
    ),
    Fault(
        "rotation-ignored",
        "video/transcode.py",
        "% 180 == 90:",
        "% 180 == 91:",
        "transcode",
        "sizes of a rotated clip are swapped",
    ),
    # Loading and models
    Fault(
        "captions-out-of-order",
        "loading/frame_source.py",
        'cache["text"][[row_of_caption[caption] for caption in captions["caption_id"]]]',
        'cache["text"][: len(captions)]',
        "store_feeding",
        "cached vectors belong to other captions",
    ),
    Fault(
        "logit-scale-unclamped",
        "models/clip4clip.py",
        "logit_scale.clamp_(max=math.log(100))",
        "logit_scale.clamp_(max=math.log(1000))",
        "clip4clip training golden",
        "the temperature may fall to 0.001",
    ),
    Fault(
        "lstm-residual",
        "models/heads/clip4clip.py",
        "hidden + frames, 2 * frames)",
        "hidden, 2 * frames)",
        "clip4clip golden",
        "seqLSTM lacks its residual",
    ),
    Fault(
        "transformer-residual",
        "models/heads/clip4clip.py",
        "        return x + frames\n",
        "        return x\n",
        "clip4clip golden",
        "seqTransf lacks its residual",
    ),
    Fault(
        "tight-mask-unread",
        "models/heads/clip4clip.py",
        "x = block(x, keep, queries=1 if number == last else None)",
        "x = block(x, torch.ones_like(keep), queries=1 if number == last else None)",
        "clip4clip golden",
        "tightTransf attends to padding",
    ),
    Fault(
        "xpool-padding",
        "models/heads/xpool.py",
        "logits.masked_fill(hidden[:, None, :],",
        "logits.masked_fill(hidden[:, None, :] & False,",
        "interaction_heads",
        "X-Pool attends to padding",
    ),
    Fault(
        "wti-one-direction",
        "models/heads/wti.py",
        "return (best_frame + best_word) / 2",
        "return best_frame",
        "interaction_heads golden",
        "WTI looks from words to frames alone",
    ),
    Fault(
        "procrustes-transposed",
        "models/closed_form.py",
        "(right.T @ left.T) @ x_white",
        "(left @ right) @ x_white",
        "baselines translator",
        "the rotation goes the other way",
    ),
    # Losses
    Fault(
        "infonce-one-direction",
        "losses/infonce.py",
        "F.cross_entropy(logits.T, truth)) / 2",
        "F.cross_entropy(logits, truth)) / 2",
        "exclude grad_cache golden training",
        "items never look for captions",
    ),
    Fault(
        "hnac-sign",
        "losses/hnac.py",
        "weights = 1 - self.hard_negative_weight",
        "weights = 1 + self.hard_negative_weight",
        "hnac golden",
        "hard negatives weigh more, not less",
    ),
    Fault(
        "sanw-bias-kept",
        "losses/sanw.py",
        "return Loss(loss + bias[0, 0], logs)",
        "return Loss(loss, logs)",
        "sanw golden",
        "the loss has the weight of the truth in its numerator",
    ),
    Fault(
        "cdcr-diagonal",
        "losses/cdcr.py",
        "correlation.square().sum() - diagonal.square().sum()",
        "correlation.square().sum()",
        "interaction_heads golden",
        "the diagonal is pushed to 0 as well",
    ),
    Fault(
        "sigmoid-signs",
        "losses/sigmoid.py",
        "signs = 2 * torch.eye(len(logits), dtype=logits.dtype, device=logits.device) - 1",
        "signs = 1 - 2 * torch.eye(len(logits), dtype=logits.dtype, device=logits.device)",
        "sigmoid",
        "pairs are pushed apart",
    ),
    Fault(
        "queue-oldest",
        "losses/multi_positive.py",
        "return (self.at - count + torch.arange(count, device=device))",
        "return (self.at + torch.arange(count, device=device))",
        "multi_positive",
        "the oldest negatives are used",
    ),
    # Training
    Fault(
        "gradients-of-one-process",
        "training/grad_cache.py",
        "summed = self.world.sum(cast(Tensor, copy.grad))",
        "summed = cast(Tensor, copy.grad)",
        "distributed",
        "a head's gradient is that of one GPU's texts",
    ),
    Fault(
        "resume-without-random-state",
        "training/checkpoint.py",
        '        set_random_state(saved["random"], self.device)\n',
        "",
        "training pretraining",
        "a resumed run draws other numbers",
    ),
    Fault(
        "best-is-last",
        "training/checkpoint.py",
        'if score > self.best["score"]:',
        "if True:",
        "training",
        "the last epoch's weights are kept",
    ),
    Fault(
        "decay-of-biases",
        "training/optim.py",
        "else parameter.ndim > 1\n",
        "else True\n",
        "bert_adam training miniclip",
        "biases and norms are decayed",
    ),
    Fault(
        "state-of-other-code",
        "training/checkpoint.py",
        'if saved["fingerprint"] != self.fingerprint:',
        "if False:",
        "state_places training",
        "a run goes on from the state of another configuration",
    ),
    Fault(
        "batches-without-seed",
        "training/batches.py",
        "rng = np.random.default_rng([seed, epoch])",
        "rng = np.random.default_rng([0, epoch])",
        "batches",
        "all seeds see the same batches",
    ),
    Fault(
        "twins-apart",
        "training/batches.py",
        "rank[codes], -sizes[codes]",
        "rng.permutation(len(rows)), -sizes[codes]",
        "batches",
        "a clip and its twin are in different batches",
    ),
    # Encoders and evaluation
    Fault(
        "no-probe-of-batches",
        "encoders/padding.py",
        "return float(np.linalg.norm(together - alone, axis=-1).max())",
        "return 0.0",
        "encoder_families encoders",
        "a vector may depend on the batch it was made in",
    ),
    Fault(
        "tie-is-a-hit",
        "ranking_metrics.py",
        "return (summed[last] - summed[np.asarray(higher, dtype=int)]) / (ties + 1)",
        "return summed[np.asarray(higher, dtype=int) + 1] - summed[np.asarray(higher, dtype=int)]",
        "ranking metrics",
        "a model that scores everything alike has R@1 of 100",
    ),
    Fault(
        "ties-with-tolerance",
        "evaluation/ranking.py",
        "search.ties[here] = np.count_nonzero(scores == truth, axis=1) - 1",
        "search.ties[here] = np.count_nonzero(np.isclose(scores, truth), axis=1) - 1",
        "ranking",
        "close scores tie",
    ),
    Fault(
        "binary-swapped",
        "evaluation/ranking.py",
        "truth, rival = pairs.own[search.queries], pairs.twin[search.rivals]",
        "rival, truth = pairs.own[search.queries], pairs.twin[search.rivals]",
        "ranking api",
        "the twin is taken for the truth",
    ),
    Fault(
        "worst-caption",
        "evaluation/ranking.py",
        "similarity.shape[1], -np.inf, similarity.dtype)\n            np.maximum.at(best",
        "similarity.shape[1], np.inf, similarity.dtype)\n            np.minimum.at(best",
        "ranking",
        "an item's rank is that of its worst caption",
    ),
    Fault(
        "gap-with-twins",
        "evaluation/cosine_gap.py",
        "cluster_of_item[item_of_caption][:, None] != cluster_of_item[None, :]",
        "item_of_caption[:, None] != np.arange(len(cluster_of_item))[None, :]",
        "cosine_gap gap_jobs",
        "twins count as negatives of the cosine gap",
    ),
    Fault(
        "trec-ties",
        "evaluation/trec.py",
        'np.argsort(documents, axis=-1, kind="stable")[..., ::-1]',
        'np.argsort(documents, axis=-1, kind="stable")',
        "trec",
        "ties are in another order than trec_eval's",
    ),
    # Statistics
    Fault(
        "paired-queries-added",
        "statistics/inference.py",
        "residuals: Any = sum(sign * part.residuals",
        "residuals: Any = sum(part.residuals",
        "inference statistics",
        "a difference forgets that its queries are shared",
    ),
    Fault(
        "seeds-as-queries",
        "statistics/variance.py",
        "seed = per_seed.var(axis=-1, ddof=1) / seeds ",
        "seed = per_seed.var(axis=-1, ddof=1) / seeds**2 ",
        "inference",
        "intervals are too narrow over seeds",
    ),
    Fault(
        "holm-without-steps",
        "statistics/inference.py",
        "factors = p.shape[-1] - np.arange(p.shape[-1])",
        "factors = np.ones(p.shape[-1])",
        "inference statistics",
        "no correction for several comparisons",
    ),
    Fault(
        "bootstrap-unpaired",
        "statistics/bootstrap.py",
        "rng = np.random.default_rng(seed)\n    weights",
        "rng = np.random.default_rng()\n    weights",
        "statistics",
        "the two methods of a pair are resampled differently",
    ),
    Fault(
        "rank-ties",
        "statistics/ranks.py",
        "return 1 + above.sum(axis=-1)",
        "return 1 + (other > own).sum(axis=-1)",
        "rank_tables",
        "rounding decides between equal means",
    ),
    # Report, search, exports
    Fault(
        "letters-without-holm",
        "tables/results.py",
        "        if row.p_holm < level and row.difference != 0:",
        "        if row.p < level and row.difference != 0:",
        "tables",
        "letters ignore Holm's correction",
    ),
    Fault(
        "lower-is-better",
        "tables/settings.py",
        'return "↓" if metric_of_column(metric).lower_is_better else "↑"',
        'return "↑" if metric_of_column(metric).lower_is_better else "↓"',
        "tables table_text",
        "arrows point the wrong way",
    ),
    Fault(
        "answer-of-errors",
        "tables/best_method.py",
        "is_better = difference.value < 0 if comparison.lower else difference.value > 0",
        "is_better = difference.value > 0",
        "answer",
        "of mean ranks the answer names the worse method",
    ),
    Fault(
        "weakest-baseline",
        "analyses/blind.py",
        "closest = max(baselines, key",
        "closest = min(baselines, key",
        "blind_table",
        "beyond one blind baseline is said to be beyond all",
    ),
    Fault(
        "worst-named-first",
        "report/time_answer.py",
        'sort_values("difference", ascending=False)',
        'sort_values("difference")',
        "probe_report",
        "the answer leads with the method that is least beyond the baselines",
    ),
    Fault(
        "ties-drawn-as-hits",
        "figures/ranks.py",
        "return np.cumsum(np.cumsum(starts - ends))[:gallery] / len(first)",
        "return np.cumsum(np.cumsum(starts - ends)[:gallery]) / len(first) + 1 / gallery",
        "figures",
        "a model that knows nothing finds all in its curve",
    ),
    Fault(
        "latex-unescaped",
        "tables/render.py",
        '".tex": escape_latex,',
        '".tex": str,',
        "table_kinds",
        "a label with & breaks the table",
    ),
    Fault(
        "stale-index",
        "search/searcher.py",
        "if stale:\n",
        "if False:\n",
        "search_index search",
        "search answers with another model's features",
    ),
    Fault(
        "untrusted-code",
        "search/trust.py",
        'if "." in (name or ""))',
        'if "." in (name or "") and False)',
        "foreign_results search",
        "results of others run their code",
    ),
    Fault(
        "mteb-outside",
        "exports/mteb.py",
        '        refuse_outside(clip_path, folder.parent, folder / "items.csv")\n',
        "",
        "mteb hostile_files",
        "files outside of the results are copied",
    ),
    # The frame of jobs
    Fault(
        "hash-without-callees",
        "workflow/staleness/code_hash.py",
        "            for read in definition.reads:\n",
        "            for read in ():\n",
        "identity identity_stages",
        "an edit of a called function makes nothing stale",
    ),
    Fault(
        "write-in-place",
        "io/files.py",
        'temporary = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")',
        "temporary = path",
        "reading archive killed_jobs",
        "a killed job leaves half a file",
    ),
    Fault(
        "nul-passes",
        "io/strict.py",
        "    if nul >= 0:\n",
        "    if nul > len(text):\n",
        "reading hostile_files",
        "a file in UTF-16 is read as text",
    ),
    Fault(
        "gradients-not-summed",
        "distributed.py",
        "    dist.all_reduce(flat)\n    for parameter",
        "    for parameter",
        "distributed",
        "several GPUs train on one GPU's gradients",
    ),
)


def plant(fault: Fault, root: Path) -> str:
    """Put a fault into the library of a checkout; returns the text that was there."""
    path = root / "src/rewind" / fault.path
    before = path.read_text(encoding="utf-8")
    if before.count(fault.old) != 1 or fault.old == fault.new:
        raise SystemExit(f"{fault.name}: {fault.path} has {fault.old!r} {before.count(fault.old)} times, not once")
    path.write_text(before.replace(fault.old, fault.new), encoding="utf-8")
    return before


def copy_checkout(target: Path) -> None:
    """The files of this checkout that git does not ignore, edits that are not committed among them."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def run_tests(root: Path, arguments: list[str], processes: int = 0) -> tuple[bool, str]:
    """Run tests up to the first that fails; returns whether one did, and its name."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not workflow", "-p", "no:cacheprovider", *arguments]
    command += ["--numprocesses", str(processes)]
    # Bytecode is not written: of two texts of one length, written within a second, Python would take the old one.
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, check=False, capture_output=True, text=True, timeout=TIME_LIMIT
        )
    except subprocess.TimeoutExpired:
        return True, f"no end within {TIME_LIMIT} s"
    if done.returncode not in (0, 1, 2):
        raise SystemExit(done.stdout + done.stderr)
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return done.returncode != 0, failed[0].removeprefix("tests/") if failed else "cannot be imported"


def file_of_tests(name: str) -> Path:
    """The file ``test_<name>.py``, in whichever folder it is."""
    return next((ROOT / "tests").rglob(f"test_{name}.py"))


def named_tests(faults: list[Fault]) -> list[str]:
    """The test files that faults name, each once."""
    names = dict.fromkeys(name for fault in faults for name in fault.tests.split())
    return [str(file_of_tests(name).relative_to(ROOT)) for name in names]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="faults whose name or file has this text")
    parser.add_argument("--list", action="store_true", help="list the faults, plant none")
    parser.add_argument(
        "--no-fallback", action="store_true", help="do not run all fast tests where the named ones pass"
    )
    options = parser.parse_args()
    faults = [
        fault for fault in FAULTS if not options.only or any(text in fault.name + fault.path for text in options.only)
    ]
    if options.list:
        for fault in faults:
            print(f"{fault.name:28} {fault.path:32} {fault.means}")
        return 0
    missed = []
    with tempfile.TemporaryDirectory(prefix="seeded-") as folder:
        root = Path(folder)
        copy_checkout(root)
        failed, name = run_tests(root, named_tests(faults))
        if failed:
            raise SystemExit(f"{name} fails without any fault: mend that first.")
        print(f"{len(faults)} faults; {len(named_tests(faults))} test files pass without one\n")
        print("| fault | file | what is wrong then | found by | seconds |\n|---|---|---|---|---|")
        for fault in faults:
            before, start = plant(fault, root), time.monotonic()
            found, name = run_tests(root, named_tests([fault]))
            if not found and not options.no_fallback:
                # But the test of this list itself, which fails where any fault is planted.
                fast = ["tests", "--ignore=tests/repository/test_seeded_faults.py", "-m", "not slow and not workflow"]
                found, name = run_tests(root, fast, processes=2)
            (root / "src/rewind" / fault.path).write_text(before, encoding="utf-8")
            shown = f"`{name}`" if found else "**nothing**"
            print(
                f"| {fault.name} | `{fault.path}` | {fault.means} | {shown} | {time.monotonic() - start:.0f} |",
                flush=True,
            )
            missed += [] if found else [fault.name]
    print(f"\n{len(faults) - len(missed)} of {len(faults)} found" + "".join(f"\nnot found: {name}" for name in missed))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
