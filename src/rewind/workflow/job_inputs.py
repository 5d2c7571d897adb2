"""What a job's script needs of its inputs and parameters: runs, pairs, keys, and the data that a model computes on.

What is imported inside of functions takes torch seconds to load; jobs without a model need not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewind.config import Dataset, RunSpec, Study
from rewind.config.dataset import MadeFrom
from rewind.config.load import merge_config
from rewind.config.study import RunKey, with_method_keys
from rewind.io.files import read_json
from rewind.job_values import Job, NamedList

if TYPE_CHECKING:
    from rewind.encoders.score_candidates import PairScorer
    from rewind.evaluation.efficiency import MeasuredRun
    from rewind.loading.run_data import RunData
    from rewind.report.study import ReportFiles
    from rewind.training.run import TrainingJob

# ---- Runs ------------------------------------------------------------------------------------------------


def study_files_by_run(study: Study, files: Iterable[str]) -> dict[RunKey, str]:
    """Files of all runs of a study, by method and seed."""
    return dict(zip(study.runs(), files, strict=True))


# ---- A model and its data ------------------------------------------------------------------------------------------


def run_spec(job: Job) -> RunSpec:
    """The run's keys, with those on which its results do not depend."""
    keys = merge_config(job.params.spec, job.execution.get("keys", {}))
    spec = RunSpec.model_validate({"evaluation": {}, "method": {}} | keys)
    return _with_keys(spec, chosen_keys(job.input.get("tuned")))


def job_dataset(job: Job) -> Dataset:
    """The data set's keys, as far as the job depends on them, with those on which no result depends."""
    return Dataset.model_validate(merge_config(job.params.dataset, job.execution.get("keys", {})))


def made_from(job: Job) -> MadeFrom:
    """How a data set of vectors is made from another, with those too."""
    keys = job.execution.get("keys", {}).get("source", {}).get("made_from", {})
    return MadeFrom.model_validate(merge_config(job.params.made_from, keys))


def chosen_keys(path: str | None) -> dict[str, Any]:
    """The keys that trials chose for a method, from their file; empty for a method without trials."""
    return read_json(path)["keys"] if path else {}


def _chosen_keys_by_method(job: Job) -> dict[str, dict[str, Any]]:
    """:func:`chosen_keys` of the methods that have trials, from ``sweep/<method>/seed<k>/choice.json``."""
    return {Path(path).parts[-3]: chosen_keys(path) for path in job.input.get("tuned", ())}


def _with_keys(spec: RunSpec, keys: dict[str, Any]) -> RunSpec:
    """A run's keys with those that its trials chose."""
    return spec.model_copy(update={"method": with_method_keys(spec.method, keys)}) if keys else spec


def max_frames(job: Job) -> int:
    """Frames per clip: a parameter, or else the sweep's choice; 0 for a model that sees no frames."""
    value, best = job.params.get("max_frames"), job.input.get("best")
    return value if value is not None else read_json(best)["max_frames"] if best else 0


def cached_input(inputs: NamedList, frames: int) -> Path | None:
    """The cached features, or else the frame store, for a number of frames, among those of all candidates of a sweep.

    A data set of vectors has one file for any number, and so have traces of clips.
    """
    if single := _input_paths(inputs, "vectors") or _input_paths(inputs, "traces"):
        return single[0]
    features = {path.stem: path for path in _input_paths(inputs, "features")}
    stores = {path.parent.name: path for path in _input_paths(inputs, "store")}
    paths = features or stores
    return paths[f"frames{frames}"] if paths else None


def _input_paths(inputs: NamedList, name: str) -> list[Path]:
    value = inputs.get(name) or []
    return [Path(path) for path in ([value] if isinstance(value, str) else value)]


def optional_input(inputs: NamedList, name: str) -> Path | None:
    """An input file that only some studies have."""
    value = inputs.get(name)
    return Path(value) if value else None


def run_data(job: Job) -> RunData:
    """The data of a job that computes features or similarities.

    Weights of the study's own pre-training, if it is an input, take the place of the backbone's.
    """
    from rewind.loading.run_data import RunData

    spec = run_spec(job)
    pretrained = optional_input(job.input, "pretrained")
    if pretrained is not None:
        spec = spec.model_copy(update={"backbone": spec.backbone.model_copy(update={"weights": str(pretrained)})})
    folder, frames = Path(job.input.item_table).parent, max_frames(job)
    return RunData(folder, job.params.dataset, spec, frames, cached_input(job.input, frames))


def pair_scorer(job: Job) -> PairScorer | None:
    """The model by name of a job that re-ranks with it."""
    from rewind.config.encoders import Encoding
    from rewind.encoders.score_candidates import PairScorer

    params = job.params
    if not params.encoding:
        return None
    keys = Encoding(**params.encoding, batch_size=job.execution["batch_size"])
    return PairScorer(keys, Path(params.state), params.code, job.threads)


def measured_runs(job: Job) -> list[MeasuredRun]:
    """The runs whose costs are measured."""
    from rewind.evaluation.efficiency import MeasuredRun

    tuned = _chosen_keys_by_method(job)
    runs = []
    for (name, label, values), model in zip(job.params.methods, job.input.models, strict=True):
        spec = _with_keys(RunSpec(**values), tuned.get(name, {}))
        runs.append(MeasuredRun(name, label, spec, model))
    return runs


# ---- Training ------------------------------------------------------------------------------------------------------


def training_job(job: Job) -> TrainingJob:
    """What a training job learns from and resumes from."""
    from rewind.training.checkpoint_store import state_path
    from rewind.training.run import TrainingJob

    params, inputs = job.params, job.input
    frames, best = max_frames(job), inputs.get("best")
    return TrainingJob(
        name=params.get("name", "sanity"),
        spec=run_spec(job),
        seed=params.get("seed", 0),
        data=Path(inputs.item_table).parent,
        dataset=params.dataset,
        max_frames=frames,
        state=state_path(params.state, job.execution.get("state_folder")),
        code=params.code,
        cache=cached_input(inputs, frames),
        pretrained=optional_input(inputs, "pretrained"),
        max_frames_tried=read_json(best).get("tried") if best else None,
        tuned=chosen_keys(inputs.get("tuned")),
        tracking=job.execution.get("tracking"),
        tracking_folder=Path(params.state).parents[-3] / "tracking",  # results/<study>
    )


def training_jobs(job: Job) -> dict[str, TrainingJob]:
    """Training jobs of a rule with ``specs``, a spec for each method, for the same data and seed."""
    from rewind.training.run import TrainingJob

    inputs, params = job.input, job.params
    frames, tuned = max_frames(job), _chosen_keys_by_method(job)
    return {
        name: TrainingJob(
            name=name,
            spec=_with_keys(RunSpec.model_validate(spec), tuned.get(name, {})),
            seed=params.seed,
            data=Path(inputs.item_table).parent,
            dataset=params.dataset,
            max_frames=frames,
            state=Path(job.output[0]).with_suffix(".state"),  # never written: timing jobs are not resumed
            code=params.code,
            cache=cached_input(inputs, frames),
            pretrained=optional_input(inputs, "pretrained"),
            tuned=tuned.get(name, {}),
        )
        for name, spec in params.specs.items()
    }


# ---- The report ----------------------------------------------------------------------------------------------------


def report_files(job: Job, study: Study) -> ReportFiles:
    """The inputs of tables, figures and the page of a study."""
    from rewind.analyses import analysis_results
    from rewind.report.study import ReportFiles
    from rewind.statistics.rank_files import ranks_folder

    inputs = job.input
    return ReportFiles(
        metrics=inputs.metrics,
        intervals=inputs.intervals,
        pairs=inputs.pairs,
        gaps=inputs.gaps,
        records=study_files_by_run(study, inputs.records),
        best=inputs.best,
        videos=inputs.videos,
        pretrained=dict(zip(study.pretraining_seeds(), inputs.get("pretraining", ()), strict=True)),
        analyses={name: path for name in analysis_results() if (path := inputs.get(name))},
        places=inputs.places,
        chance=inputs.chance,
        trials=list(inputs.get("trials", ())),
        ranks=ranks_folder(inputs.ranks),
        accepted=list(job.params.get("accepted") or ()),
    )
