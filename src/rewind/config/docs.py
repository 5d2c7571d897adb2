"""Writes ``config/README.md``, the reference of all keys, from the models: ``python -m rewind.config.docs``."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from rewind.config.base import ConfigModel, history, nested_models
from rewind.config.dataset import Dataset
from rewind.config.encoders import EncoderOptions
from rewind.config.study import Study

INTRODUCTION = """# Configuration

*Written by `make docs` from the models in `src/rewind/config`; edit the descriptions there.*

`config.yaml` lists the **studies** to run. A study (`studies/<name>.yaml`) names a **dataset**
(`datasets/<name>.yaml`), which is prepared once and shared by every study on it. Files are validated completely before
anything runs. Unknown keys, keys that contradict each other, missing files, and models, heads, losses and samplers that
cannot be built are all reported together, each with the path of its key and what to do.

Any key of any file can be changed on the command line, as nested keys or as a dotted path:

    snakemake --config 'studies=[demo]' 'overrides={studies.demo.training.epochs: 2, datasets.shapes.video.fps: 4}'

A method, `sanity`, `sweep` and `pretraining` can each have a `training` block, whose keys override those of the study's
own `training` block; those of `sweep` override the block of the method that it trains.

The column *decides* states what becomes stale if a key of finished results is changed, with all that is computed
from it:

| decides | what is computed again |
|---|---|
| data | clips and captions |
| run | pre-trainings, trials, features and training runs |
| scores | ranks and metrics, and what is evaluated on finished runs; nothing is trained |
| statistics | intervals and tests, and which runs exist: finished ones stay |
| report | tables, figures and the page |
| check | only the check itself (over-fitting; how many clips may be missing) |
| nothing | nothing: it is about the machine, or which files are accepted |
"""


def render_config_docs() -> str:
    """The page as Markdown."""
    seen: set[type[BaseModel]] = set()
    parts = [
        INTRODUCTION,
        "## Study files\n",
        *_render_model(Study, "", seen),
        "## Dataset files\n",
        *_render_model(Dataset, "", seen),
    ]
    parts += ["## Options of `model: vectors` with an `encoder`\n", *_render_model(EncoderOptions, "", seen)]
    return "\n".join(parts)


def _render_model(model: type[BaseModel], path: str, seen: set[type[BaseModel]]) -> list[str]:
    lines = [f"### `{path}`: {_first_line(model)}\n" if path else f"{_first_line(model)}\n"]
    # Options of components decide what their component does.
    deciding = issubclass(model, ConfigModel) and any(map(model.affects, model.model_fields))
    column = ("decides | ", "---|") if deciding else ("", "")
    lines += [f"| key | type | default | {column[0]}meaning |", f"|---|---|---|{column[1]}---|"]
    below: list[tuple[str, type[BaseModel]]] = []
    for name, field in model.model_fields.items():
        if "retired" in history(field):
            continue
        default = "required" if field.is_required() else _default_text(field.get_default(call_default_factory=True))
        inner = nested_models(field.annotation)
        decides = f"{model.affects(name) or ('see below' if inner else '')} | " if deciding else ""  # type: ignore[attr-defined]
        meaning = (field.description or "").replace("|", "\\|")
        lines.append(
            f"| `{name}` | {_type_text(field.annotation)}{_bounds_text(field)} | {default} | {decides}{meaning} |"
        )
        below += [(_key_path(path, name, field.annotation, block, len(inner)), block) for block in inner]
    lines.append("")
    for where, block in below:
        if block not in seen:  # `training` is a key of several blocks, and described once
            seen.add(block)
            lines += _render_model(block, where, seen)
    return lines


def _key_path(path: str, name: str, annotation: Any, model: type[BaseModel], alternatives: int) -> str:
    star = ".*" if get_origin(annotation) is dict else ""
    which = ""
    if alternatives > 1:
        kind = get_args(model.model_fields["format"].annotation)
        which = f" with `format: {kind[0]}`" if kind else " with a format of your own"
    joined = f"{path}.{name}{star}" if path else f"{name}{star}"
    return joined + which.replace("`", "")


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0].replace("``", "`")


def _type_text(annotation: Any) -> str:
    if annotation is None or annotation is type(None):
        return "null"
    if isinstance(annotation, type) and not get_args(annotation):
        return "block" if issubclass(annotation, BaseModel) else annotation.__name__
    origin, inner = get_origin(annotation), get_args(annotation)
    if nested_models(annotation) and origin is not dict:
        return "block or null" if type(None) in inner else "block"
    if origin is dict:
        return f"{_type_text(inner[0])}: {_type_text(inner[1])}"
    if origin in (list, tuple):
        return f"list of {_type_text(inner[0])}"
    if str(origin).endswith("Literal"):
        return " \\| ".join(f"`{value}`" for value in inner)
    return " or ".join(_type_text(part) for part in inner) or str(annotation)


def _bounds_text(field: Any) -> str:
    signs = {"gt": "> ", "ge": "≥ ", "lt": "< ", "le": "≤ "}
    bounds = [f"{sign}{getattr(m, name):g}" for m in field.metadata for name, sign in signs.items() if hasattr(m, name)]
    return f" ({', '.join(bounds)})" if bounds else ""


def _default_text(value: Any) -> str:
    if isinstance(value, BaseModel):
        return "see below"
    if value is PydanticUndefined:
        return ""
    if value is None:
        return "`null`"
    return f"`{value}`" if value != "" else "empty"


if __name__ == "__main__":
    print(render_config_docs(), end="")
