"""What all configuration models share: base class, declarations of fields, checks of names and seeds.

Plug-ins derive the model of their options from :class:`ConfigModel` and read them with :func:`read_options`.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from rewind.errors import RewindError, label_fault
from rewind.registry import BACKBONES, HEADS, MODELS

ConfigT = TypeVar("ConfigT", bound="ConfigModel")

NAME_PATTERN = r"^[A-Za-z0-9_\-]{1,100}$"
"""Names that become part of file and folder names: no path, no dot (``<method>.seed<k>``), no character with a meaning
for Snakemake, and short enough for suffixes to be added."""

NAME_RULE = "use letters, digits, '_' and '-', at most 100 of them"
""":data:`NAME_PATTERN` in words."""

DRAFT_CONTEXT = "draft"
"""Key of pydantic's validation context: single keys are checked, but not how they fit together."""

DEFAULT_VOCABULARY_SIZE = 5000  # token ids of MiniCLIP's tokenizer

SEED_BOUNDS: dict[str, Any] = {"ge": 0, "le": 2**32 - 1}
"""Bounds of a seed that NumPy, scikit-learn and torch all accept."""


Affects = Literal["data", "run", "scores", "statistics", "report", "check", "nothing"]
"""What a key decides first: prepared data, trained runs, scores and ranks, statistics, tables and figures; whether
a check lets them pass; or nothing that is in a result, as the number of threads."""
_STAGES: tuple[Affects, ...] = ("data", "run", "scores", "statistics", "report")  # each depends on those before it


class ConfigModel(BaseModel):
    """A block of a YAML file: unknown keys, infinity and NaN are refused, values cannot be changed once read.

    A class says what its keys decide, and a key that decides something else says so itself.

    >>> class Noise(ConfigModel, affects="run"):
    ...     share: float = config_field(0.1, "Share of noisy frames.", ge=0, le=1)
    ...     seed: int = config_field(0, "Seed of the noise.", legacy_default=0)
    ...     label: str = config_field("", "Name in tables.", affects="report")
    >>> Noise(share=0.5)
    Noise(share=0.5, seed=0, label='')
    >>> Noise(share=0.5).fingerprint("run"), Noise(share=0.5).fingerprint()
    ({'share': 0.5}, {'share': 0.5, 'label': ''})
    >>> Noise(share=0.5, label="noisy").left_out("run")
    {'label': 'noisy'}
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    _affects: ClassVar[Affects | None] = None

    def __init_subclass__(cls, affects: Affects | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if affects:
            cls._affects = affects

    @classmethod
    def affects(cls, name: str) -> Affects | None:
        """What a key decides; None where neither it nor its class states so (options of a user's own)."""
        return history(cls.model_fields[name]).get("affects", cls._affects)

    def fingerprint(self, stage: Affects = "report", **selection: Any) -> dict[str, Any]:
        """The keys that results of a stage depend on, as plain values, which rules compare.

        A key that was added after a release is left out while its value is both its default and what was done before
        the key existed (``legacy_default`` of :func:`config_field`), so that adding it makes no results stale. A key
        that was renamed has its former name here (``formerly``), and one that was removed its last value
        (:func:`retired_field`).

        Args:
            stage: keys that decide nothing before it, or in it, are left out.
            selection: ``include`` or ``exclude`` of pydantic's ``model_dump``.
        """
        return _as_before(self, self.model_dump(mode="json", **selection), _counted(stage))

    def left_out(self, stage: Affects) -> dict[str, Any]:
        """What :meth:`fingerprint` leaves out because the stage does not depend on it; a job may need it still."""
        return _uncounted(self, self.model_dump(mode="json"), _counted(stage))

    @model_validator(mode="before")
    @classmethod
    def _accept_former_keys(cls, values: Any) -> Any:
        """Former names as they are now: earlier files have them, and fingerprints keep them."""
        renamed, retired = _former_keys(cls)
        if not isinstance(values, dict) or values.keys().isdisjoint({*renamed, *retired}):
            return values
        for key in values:
            if key in renamed and renamed[key] in values:
                raise ValueError(f"`{key}` is the former name of `{renamed[key]}`: give one of the two")
            if key in retired and values[key] != cls.model_fields[key].default:
                raise ValueError(f"`{key}` was removed: {cls.model_fields[key].description}")
        return {renamed.get(key, key): value for key, value in values.items()}


@functools.cache  # called for every block that is read
def _former_keys(model: type[ConfigModel]) -> tuple[dict[str, str], set[str]]:
    """Former name → name of the keys that were renamed; and the keys that were removed."""
    past = {name: history(field) for name, field in model.model_fields.items()}
    renamed = {str(keys["formerly"]): name for name, keys in past.items() if "formerly" in keys}
    return renamed, {name for name, keys in past.items() if "retired" in keys}


def history(field: FieldInfo) -> dict[str, Any]:
    """What earlier releases knew of a key: ``legacy_default``, ``formerly``, ``retired``, as far as they apply."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


ANY_VALUE: Any = object()


def uncounted(model: type[ConfigModel]) -> dict[str, Any]:
    """Names of keys that a fingerprint may lack, in blocks inside too → the value with which it does, or any.

    >>> class Noise(ConfigModel, affects="run"):
    ...     seed: int = config_field(0, "Seed of the noise.", legacy_default=0)
    ...     label: str = config_field("", "Name in tables.", affects="report")
    >>> uncounted(Noise) == {"seed": 0, "label": ANY_VALUE}
    True
    """
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        for block in nested_models(field.annotation):
            found |= uncounted(block) if issubclass(block, ConfigModel) else {}
        if model.affects(name) not in (None, "data", "run"):
            found[name] = ANY_VALUE
        elif "legacy_default" in history(field):
            found.setdefault(name, history(field)["legacy_default"])
    return found


def _counted(stage: Affects) -> frozenset[Affects | None]:
    """What the keys decide that a stage depends on."""
    before = _STAGES.index("run" if stage == "check" else stage) + 1
    return frozenset([*_STAGES[:before], stage, None])


def _as_before(value: Any, dumped: Any, counted: frozenset[Affects | None]) -> Any:
    """The dump of ``value`` without keys at their legacy default and under former names, in blocks inside it too."""
    if isinstance(value, ConfigModel):
        fingerprint: dict[str, Any] = {}  # in the same order: rules compare texts
        for name in dumped:
            field, inner = type(value).model_fields[name], getattr(value, name)
            if type(value).affects(name) not in counted:
                continue
            past = history(field)
            if "legacy_default" not in past or not inner == past["legacy_default"] == field.default:
                fingerprint[past.get("formerly", name)] = _as_before(inner, dumped[name], counted)
        return fingerprint
    if isinstance(value, dict):
        return {name: _as_before(inner, dumped[str(name)], counted) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_before(inner, part, counted) for inner, part in zip(value, dumped, strict=True)]
    return dumped


def _uncounted(value: ConfigModel, dumped: dict[str, Any], counted: frozenset[Affects | None]) -> dict[str, Any]:
    """The keys of ``value`` that :func:`_as_before` drops because they do not count, in blocks inside it too."""
    rest: dict[str, Any] = {}
    for name, part in dumped.items():
        inner = getattr(value, name)
        if type(value).affects(name) not in counted:
            rest[name] = part
        elif isinstance(inner, ConfigModel) and (below := _uncounted(inner, part, counted)):
            # A job that depends on no key of this block also gets what a block needs: keys that have no default.
            needed = {key: part[key] for key, field in type(inner).model_fields.items() if field.is_required()}
            rest[name] = needed | below
    return rest


_SINCE_FIRST_RELEASE = object()  # no legacy default: the key has existed since the first release


def config_field(
    default: Any,
    description: str,
    legacy_default: Any = _SINCE_FIRST_RELEASE,
    formerly: Any = None,
    affects: Affects | None = None,
    read_with: Mapping[str, Collection[Any]] | None = None,
    **bounds: Any,
) -> Any:
    """Declare a key with its default, its description in ``config/README.md``, and its bounds.

    Args:
        affects: what the key decides first, if not what its class states.
        read_with: another key of the block → its values with which this key is read; see :func:`unread_keys`.
        legacy_default: for a key that was added after a release: the value that stands for what was done until then.
            Earlier runs still count while the key has it, see :meth:`ConfigModel.fingerprint`.
        formerly: the name that a renamed key had: files may still have it, and earlier runs still count.
    """
    past: dict[str, Any] = {}
    if legacy_default is not _SINCE_FIRST_RELEASE:
        past["legacy_default"] = legacy_default
    if formerly is not None:
        past["formerly"] = formerly
    past |= {name: value for name, value in (("affects", affects), ("read_with", read_with)) if value is not None}
    return Field(default, description=description, json_schema_extra=past or None, **bounds)


def retired_field(value: Any, advice: str) -> Any:
    """Declare that a key was removed, in the place where it stood: earlier runs with its last value still count.

    A file may still give the key, with this value; another is refused with the advice. No document lists it.

    >>> class Noise(ConfigModel, affects="run"):
    ...     share: float = config_field(0.1, "Share of noisy frames.", formerly="amount")
    ...     gain: float = retired_field(1.0, "scale the clips instead.")
    >>> Noise.model_validate({"amount": 0.5}), Noise(share=0.5).fingerprint()
    (Noise(share=0.5, gain=1.0), {'amount': 0.5, 'gain': 1.0})
    """
    return Field(value, description=advice, json_schema_extra={"retired": True})


def required_field(description: str, affects: Affects | None = None, **bounds: Any) -> Any:
    """Declare a key that the file must give; see :func:`config_field`."""
    return Field(..., description=description, json_schema_extra={"affects": affects} if affects else None, **bounds)


GIVEN, NOT_GIVEN = (object(),), (None,)
"""For ``read_with``: the other key has any value, or none."""


def unread_keys(value: Any, where: str = "") -> Iterator[str]:
    """Keys that are set and that nothing reads where they stand, as ``key: why; what to do``.

    What a dotted path names may read any key; a misspelt name is reported elsewhere.

    >>> class Text(ConfigModel, affects="run"):
    ...     tokenizer: str = config_field("clip", "Which.")
    ...     size: int = config_field(9, "Of `words`.", read_with={"tokenizer": ["words"]})
    >>> list(unread_keys(Text(size=5), "text")), list(unread_keys(Text(tokenizer="words", size=5), "text"))
    (['text.size: tokenizer: clip does not read it; remove the key'], [])
    """
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from unread_keys(inner, f"{where}.{name}")
    if not isinstance(value, ConfigModel):
        return
    for name, field in type(value).model_fields.items():
        inner, path = getattr(value, name), f"{where}.{name}" if where else name
        yield from unread_keys(inner, path)
        for other, known in history(field).get("read_with", {}).items() if inner != field.default else ():
            chosen = getattr(value, other)
            if known is GIVEN or known is NOT_GIVEN:
                if (chosen is None) != (known is NOT_GIVEN):
                    yield f"{path}: it is read only {'without' if chosen else 'with'} {other}; remove the key"
            elif chosen not in known and _reads_known_keys(other, str(chosen)):
                yield f"{path}: {other}: {chosen} does not read it; remove the key"


def _reads_known_keys(key: str, name: str) -> bool:
    """Whether a name is one of Rewind's own."""
    registry = {"kind": BACKBONES, "head": HEADS, "model": MODELS}.get(key)
    return name in registry.names() if registry else "." not in name


def nested_models(annotation: Any) -> list[type[BaseModel]]:
    """The pydantic models inside the type of a key: one for a block, several for alternatives, none for plain values.

    >>> class Noise(ConfigModel):
    ...     share: float = 0.1
    >>> nested_models(dict[str, Noise] | None)
    [<class 'rewind.config.base.Noise'>]
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in nested_models(part)] if get_origin(annotation) else []


def read_options(model: type[ConfigT], options: Mapping[str, Any], where: str, owner: str) -> ConfigT:
    """The free options of something that a study names (a loss, a sampler), checked by its own model.

    Raises:
        RewindError: with the path of the first option that is unknown or has a wrong value.

    >>> class PkOptions(ConfigModel):
    ...     captions: int = config_field(2, "Captions of each item in a batch.", ge=2)
    >>> read_options(PkOptions, {"captions": 3}, "training.batch.sampler_options", "pk")
    PkOptions(captions=3)
    >>> read_options(PkOptions, {"clips": 3}, "training.batch.sampler_options", "pk")
    Traceback (most recent call last):
        ...
    rewind.errors.RewindError: training.batch.sampler_options.clips: pk has no such option; its options are captions.
    """
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        fault = error.errors()[0]
    path = ".".join([where, *map(str, fault["loc"])])
    if fault["type"] == "extra_forbidden":
        names = [field.alias or name for name, field in model.model_fields.items()]
        available = f"its options are {', '.join(names)}" if names else "it has no options"
        raise RewindError(f"{path}: {owner} has no such option; {available}.")
    shown = "" if isinstance(fault.get("input"), dict) else f" (given: {fault.get('input')!r})"
    raise RewindError(f"{path}: {fault_message(fault)}{shown}.")


def _require_label(text: str) -> str:
    text = text.strip()  # a text of several lines in YAML ends with a line feed
    if text and (fault := label_fault(text)):
        raise ValueError(fault)
    return text


LabelText = Annotated[str, AfterValidator(_require_label)]
"""A name for tables, figures and pages, see :func:`rewind.errors.label_fault`; may be empty."""


_FAULT_MESSAGES = {
    "missing": "this key is missing",
    "extra_forbidden": "unknown key",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "model_type": "a block of keys is expected here",
    "dict_type": "a block of keys is expected here",
    "dataclass_type": "a block of keys is expected here",
}


def fault_message(fault: Mapping[str, Any]) -> str:
    """What is wrong with a value, of one of pydantic's ``ValidationError.errors()``, in words that name no Python type.

    >>> fault_message({"type": "int_parsing", "msg": "Input should be a valid integer, unable to parse string"})
    'must be a whole number'
    """
    message = _FAULT_MESSAGES.get(fault["type"]) or str(fault["msg"]).removeprefix("Value error, ")
    return message.replace("Input should be", "must be")


def require_unique(values: list[Any]) -> list[Any]:
    """Return the values as they are, for pydantic validators; refuse one that is listed twice."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"{value!r} is listed twice; keep one")
    return values


def require_valid_seeds(values: list[int]) -> list[int]:
    """Return the seeds as they are, for pydantic validators; refuse one out of bounds or listed twice."""
    for value in values:
        if not SEED_BOUNDS["ge"] <= value <= SEED_BOUNDS["le"]:
            raise ValueError(f"{value} is not a seed: give whole numbers from 0 to {SEED_BOUNDS['le']:,}")
        if values.count(value) > 1:
            raise ValueError(f"seed {value} is listed twice, but one seed gives one run: keep one")
    return values
