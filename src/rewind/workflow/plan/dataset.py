"""The stages of a data set: from source files to clips and captions, and vectors by models that studies name."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rewind.config import Dataset, Study
from rewind.config.dataset import EmbeddingsSource, MadeFrom
from rewind.config.encoders import Encoding
from rewind.data.groups import SENSITIVITY_GROUPS, dataset_has_groups, group_file
from rewind.data.questions import has_answers, has_caption_pairs, has_foils, question_files, reader_names
from rewind.errors import RewindError
from rewind.registry import ENCODERS, FORMATS
from rewind.video.sources import annotation_files
from rewind.workflow import memory
from rewind.workflow.config import source_digest
from rewind.workflow.plan.files import Files, Unwatched, json_files, user_files
from rewind.workflow.stages import CodeDependencies

PACKAGED_ENCODERS = ("minilm", "efficientnet_lite0")  # small networks, made for a CPU


class DatasetPlan:
    """The stages of one data set.

    Args:
        datasets: all data sets of the run: one of vectors may be made from another.

    >>> shapes = Dataset(name="shapes", source={"format": "shapes"})
    >>> DatasetPlan(shapes, {"shapes": shapes}).source_files()
    ['results/data/shapes/source/ready.json', 'results/data/shapes/source.tar']
    """

    def __init__(
        self, dataset: Dataset, datasets: Mapping[str, Dataset], studies: Sequence[Study] = (), results: str = "results"
    ) -> None:
        self.keys, self.name, self.results = dataset, dataset.name, results
        self.folder = f"{results}/data/{dataset.name}"
        self._datasets, self._studies = datasets, [study for study in studies if study.dataset == dataset.name]

    # Source files

    def annotations(self) -> list[str]:
        """The user's annotation files."""
        return user_files(annotation_files(self.keys))

    def source_files(self) -> list[str]:
        """What annotations are read from: made here, or the user's own files."""
        if self.keys.made_here:
            return [f"{self.folder}/source/ready.json", *self.packed_sources()]
        return self.annotations()

    def packed_sources(self) -> list[str]:
        """Source files that the workflow made, as one file that can travel; ``ready.json`` states when they changed."""
        return [Unwatched(f"{self.folder}/source.tar")] if self.keys.made_here and not self.keys.vectors else []

    def source_keys(self) -> dict[str, Any]:
        return self.keys.fingerprint("data", include={"name", "source", "reverse"})

    def source_listing(self) -> str | None:
        """A hash of the user's folders of clips or images: another file there is another inventory."""
        return source_digest(self.keys)

    # Clips and images

    def inventory_keys(self) -> dict[str, Any]:
        named = {"name", "source", "reverse", self.keys.items.removesuffix("s")}
        return self.keys.fingerprint("data", include=named | self._annotation_keys())

    def _annotation_keys(self) -> set[str]:
        """Keys that its annotations depend on, where its file gives them."""
        return {key for key in ("allow_overlap", "only") if getattr(self.keys, key)}

    def media_keys(self) -> dict[str, Any]:
        return self.keys.media.fingerprint("data", exclude={"shards"})

    def shard_files(self, suffix: str) -> list[str]:
        """Files of the shards of its clips, by their suffix."""
        count = self.keys.media.shards
        return [f"{self.folder}/videos/shards/{n}-of-{count}.{suffix}" for n in range(count)]

    def shard_reports(self) -> list[str]:
        return self.shard_files("csv")

    def shard_indexes(self) -> list[str]:
        return self.shard_files("index.csv")

    def clip_files(self) -> Files:
        """What a job reads that opens clips; nothing where there are none.

        Only the small table of what shards hold decides whether outputs are stale. The shards are there to be read: one
        that was lost and made again, with the same bytes, is newer, but changes nothing.
        """
        if isinstance(self.keys.source, EmbeddingsSource):
            made_from = self.keys.source.made_from
            return self._origin(made_from).clip_files() if made_from else {}
        if not self.keys.clips:
            return {}
        clips = [f"{self.folder}/videos/clips.csv", *self.shard_files("tar")]
        return {"shards": f"{self.folder}/videos/shards.csv", "clips": [Unwatched(path) for path in clips]}

    # Traces of how clips were made

    @property
    def traces(self) -> str:
        return f"{self.folder}/videos/traces.csv"

    def trace_inputs(self) -> Files:
        """What traces are measured in: source files, by the report of what became of them, and normalised clips."""
        table = {"inventory": f"{self.folder}/videos/inventory.csv", "report": f"{self.folder}/videos/report.csv"}
        return table | {"sources": self.packed_sources()} | self.clip_files()

    # Captions and groups

    def overlap_inventory(self) -> list[str]:
        """What captions are told of overlaps of splits, where they are allowed and clips are here."""
        here = self.keys.clips and not self.keys.vectors
        return [f"{self.folder}/videos/inventory.csv"] if here and self.keys.allow_overlap else []

    def caption_keys(self) -> dict[str, Any]:
        included = {"name", "source", "reverse"} | ({"image"} if self.keys.items == "images" else set())
        return self.keys.fingerprint("data", include=included | self._clips_key() | self._annotation_keys())

    def _clips_key(self) -> set[str]:
        return set() if self.keys.clips else {"clips"}

    def group_files(self) -> list[str]:
        """The CSV of groups that its file names, if any."""
        return user_files([group_file(self.keys)])

    def sensitivity(self) -> Files:
        """Where groups by sensitivity to time are read from, if they are asked for."""
        return {"traces": self.traces} if self.keys.groups == SENSITIVITY_GROUPS else {}

    def group_keys(self) -> dict[str, Any]:
        included = {"name", "source", "reverse", "groups"}
        return self.keys.fingerprint("statistics", include=included | self._clips_key() | self._annotation_keys())

    @functools.cached_property
    def has_groups(self) -> bool:
        """Whether captions are in groups; where it cannot be read, its own readers say why."""
        try:
            return dataset_has_groups(self.keys)
        except (RewindError, OSError, ValueError, csv.Error):
            return False

    def question_sources(self) -> list[str]:
        """CSV files of answers and foils that its file names."""
        return user_files(question_files(self.keys))

    def question_keys(self) -> dict[str, Any]:
        included = {"name", "source", "reverse", "answers", "answers_gallery", "foils"}
        return self.keys.fingerprint("scores", include=included | self._clips_key() | self._annotation_keys())

    def question_files(self, probes: Iterable[str]) -> Files:
        """Tables that probes read besides captions, by the name of the input."""
        tables = {"answers": ["answers"] * has_answers(self.keys)}
        tables["foils"] = ["foils", "proficiency"] * has_foils(self.keys)
        tables["pairs"] = ["caption_pairs"] * has_caption_pairs(self.keys)
        return {name: f"{self.folder}/captions/{name}.csv" for probe in probes for name in tables.get(probe, [])}

    def vector_report_keys(self) -> dict[str, Any]:
        further = set() if self.keys.vectors else {"reverse", "clips"}
        return self.keys.fingerprint("data", include={"name", "source"} | self._annotation_keys() | further)

    def captions(self, *splits: str) -> dict[str, str]:
        return {split: f"{self.folder}/captions/{self.name}_{split}.csv" for split in splits}

    @property
    def item_table(self) -> str:
        return f"{self.folder}/items.csv"

    # Vectors that are computed from another data set

    def _made_from(self) -> MadeFrom:
        source = self.keys.source
        assert isinstance(source, EmbeddingsSource) and source.made_from  # the rule exists only for such data sets
        return source.made_from

    def _origin(self, made_from: MadeFrom) -> DatasetPlan:
        """The data set that it is made from."""
        return DatasetPlan(self._datasets[made_from.dataset], self._datasets, results=self.results)

    def encode_dataset_inputs(self) -> Files:
        made_from = self._made_from()
        origin = self._origin(made_from)
        return origin.clip_files() | {
            "item_table": origin.item_table,
            "captions": list(origin.captions("train", "valid", "test").values()),
            "weights": user_files(self._encoder_files()),
        }

    def _encoder_files(self) -> list[str]:
        """Local files of the networks that make it."""
        made_from = self._made_from()
        by_name = filter(None, (made_from.encoding(side) for side in made_from.sides))
        weights = [encoder.weights for encoder in made_from.sides.values() if encoder.weights]
        return weights + [path for encoding in by_name for path in encoding.files()]

    def made_from_keys(self) -> dict[str, Any]:
        return self._made_from().fingerprint("data")

    def execution(self) -> dict[str, Any]:
        """Keys that its jobs need and no result depends on: changing them makes nothing stale."""
        return {"keys": self.keys.left_out("report")}

    def encode_dataset_gpus(self) -> int:
        """One, if a study on it uses GPUs and its networks are large."""
        encoders = (self._made_from().text, self._made_from().image)
        large = any(encoder.name not in PACKAGED_ENCODERS for encoder in encoders)
        wanted = max((study.resources.gpus for study in self._studies), default=0)
        return min(1, wanted) if large else 0

    # Vectors of its test split by models that studies name

    @functools.cached_property
    def encodings(self) -> dict[str, Encoding]:
        """Folder of the vectors → how they are made."""
        return {e.folder(): e for study in self._studies for e in study.encodings().values()}

    def encode_vectors_inputs(self, encoding: str) -> Files:
        return self.clip_files() | {
            "item_table": self.item_table,
            "captions": self.captions("test")["test"],
            "local": user_files(self.encodings[encoding].files()),
        }

    def encoder_files(self, encoding: str) -> list[str]:
        """Files of the user's that a model by name is made of."""
        return user_files(self.encodings[encoding].files())

    def foil_encoding_gpus(self, encoding: str) -> int:
        """GPUs of a job that encodes texts in one process."""
        return min(1, self.encoding_gpus(encoding))

    def encoding_keys(self, encoding: str) -> dict[str, Any]:
        return self.encodings[encoding].content()

    def encoding_threads(self, encoding: str) -> int:
        return self._most(encoding, "threads")

    def encoding_gpus(self, encoding: str) -> int:
        return self._most(encoding, "gpus")

    def encoding_execution(self, encoding: str) -> dict[str, Any]:
        """How it is computed, whatever comes out: changing it recomputes no vectors."""
        shares = [study.resources.shared_gpu_mb for study in self._wanting(encoding)]
        return {
            "batch_size": self.encodings[encoding].batch_size,
            "require_gpu": bool(self._most(encoding, "require_gpu")),
            "gpu_mem_mb": None if None in shares else max(filter(None, shares)),
        }

    def _most(self, encoding: str, key: str) -> int:
        """The highest value of a key in the studies that want these vectors."""
        return max(int(getattr(study.resources, key)) for study in self._wanting(encoding))

    def _wanting(self, encoding: str) -> list[Study]:
        return [s for s in self._studies if encoding in {e.folder() for e in s.encodings().values()}]

    # Groups of jobs that a cluster runs in one submission, see docs/cluster.md

    def preparation_group(self) -> str:
        return f"prepare_{self.name}"

    def shard_group(self) -> str | None:
        """The group of its clips, where one job makes them all; else their jobs run side by side."""
        return self.preparation_group() if self.keys.vectors or self.keys.media.shards == 1 else None

    def captions_group(self) -> str:
        """The group of rules behind its clips."""
        return self.shard_group() or f"captions_{self.name}"

    # Memory in MB; an attempt after the first asks for as much again

    def annotation_memory(self, attempt: int) -> int:
        return attempt * memory.annotation_job_mb(self.keys)

    def clip_memory(self, attempt: int) -> int:
        """Memory of jobs that decode: a clip's frames are held while it is reversed, by each worker."""
        return attempt * (2000 + 1000 * self.keys.media.workers)

    def encode_dataset_memory(self, attempt: int) -> int:
        """Memory for annotations and for the networks that encode."""
        return self.annotation_memory(attempt) + attempt * 4000

    def encoding_memory(self, encoding: str, attempt: int) -> int:
        return attempt * self._most(encoding, "mem_mb")

    # Code

    def code_dependencies(self, rule: str, encoding: str = "") -> CodeDependencies:
        """What a stage's code depends on besides its script: what keys name, and files of the user's."""
        annotated = CodeDependencies([FORMATS.full_name(self.keys.source.format)])
        match rule:
            case "sources" | "vectors":
                return annotated.with_files(self.annotations())
            case "inventory" | "captions" | "vector_report":
                return annotated.with_files(self.source_files())
            case "groups":
                return annotated.with_files([*self.source_files(), *self.group_files()])
            case "answers" | "foils":
                tables = ["answers"] if rule == "answers" else ["foils", "caption_pairs", "proficiency"]
                modules = [*annotated.modules, *reader_names(self.keys, tables)]
                return CodeDependencies(modules, files=[*self.source_files(), *self.question_sources()])
            case "video_shard":
                return CodeDependencies(items=self.keys.items)
            case "encode_dataset":
                sides = self._made_from().sides.values()
                by_name = [ENCODERS.full_name(side.encoder) for side in sides if side.encoder]
                own = [side.name for side in sides if not side.encoder and "." in side.name]
                files = self._encoder_files() + json_files(side.architecture for side in sides)
                return CodeDependencies(by_name + own, files=user_files(files))
            case "encode_vectors" | "encode_foil_texts":
                keys = self.encodings[encoding]
                return CodeDependencies([ENCODERS.full_name(keys.encoder)], files=user_files(keys.files()))
        return CodeDependencies()
