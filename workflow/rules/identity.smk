"""What rules pass as ``code``: the sum of the code that computes their outputs, see src/rewind/workflow/stages.py.

A rule names what its study chooses by a string, since no import says it.
"""

import atexit

from rewind.config.pretraining import own_backbone, uses_study_backbone
from rewind.registry import ENCODERS, LOSSES, MODELS, SAMPLERS, full_name
from rewind.workflow.accepted import AcceptedEditStore
from rewind.workflow.code_hash import StageCode, store_code_hash
from rewind.workflow.stages import dynamic_dependencies
from rewind.workflow.user_inputs import UserInputs

IDENTITY = StageCode(memory=Path(".snakemake/rewind/modules.json"))
ACCEPTED = AcceptedEditStore()
SEEN = UserInputs(Path(".snakemake/rewind/brought.csv"), writes=workflow.is_main_process)
try:
    for folder in (*STUDIES, *(f"data/{name}" for name in DATASETS)):
        ACCEPTED.entries(Path("results") / folder / "accepted.json")
except RewindError as error:
    raise WorkflowError(str(error)) from None
if workflow.is_main_process:
    atexit.register(IDENTITY.reader.memory.keep)
    atexit.register(SEEN.keep)


def code(wildcards, stage, *modules, files=(), **chosen):
    """The identity of a stage; ``modules`` are found by name at run time, for ``chosen`` see ``dynamic_dependencies``.

    Of ``files`` those count that the user brings, where one took the place of another. They are not taken from the
    rule's input: Snakemake compares no parameter that was made from it.
    """
    parts = IDENTITY.parts(stage, modules, dynamic_dependencies(**chosen))
    mark = store_code_hash(stage, parts | SEEN.parts(OWN.intersection(map(str, files))))
    # Where somebody accepted an edit, the output keeps the sum that it was made with.
    return ACCEPTED.recorded(stage, dict(wildcards.items()), mark)


def accepted(name):
    """What tables say of edits that somebody declared to change no number."""
    return ACCEPTED.sentences(name, STUDIES[name].dataset)


def run_code(wildcards, stage, *names):
    """The identity of a stage that trains methods of a study as they are declared."""
    chosen = study(wildcards)
    keys = chosen.evaluation.zero_shot
    validated = keys is not None and keys.validation_images != 0
    return method_code(wildcards, stage, *(chosen.methods[name] for name in names), zero_shot=validated)


def trial_code(wildcards, stage, method, training):
    """The identity of a stage that trains a method with other keys."""
    return method_code(wildcards, stage, method.model_copy(update={"training": training}))


def method_code(wildcards, stage, *methods, zero_shot=False):
    modules = [name for method in methods for name in trained_modules(study(wildcards), method)]
    files = [*files_of(wildcards, methods), *weights_of(wildcards.study)]
    files += zero_shot_input(wildcards.study) if zero_shot else []
    return code(wildcards, stage, *modules, files=files, heads=heads_of(methods), zero_shot=zero_shot)


def model_code(wildcards, stage, *names, files=()):
    """The identity of a stage that runs models of methods; how they were trained is no part of it."""
    methods = [study(wildcards).methods[name] for name in names]
    modules = [name for method in methods for name in model_modules(study(wildcards), method)]
    files = [*files, *files_of(wildcards, methods)]
    return code(wildcards, stage, *modules, files=files, heads=heads_of(methods))


def files_of(wildcards, methods):
    """Files of the user's that models are made of: vectors or scores, weights of their own, captions of a vocabulary."""
    backbones = (own_backbone(method) for method in methods)
    found = [keys.get("weights") for keys in backbones if isinstance(keys, dict)]
    found += [path for method in methods for path in brought_files(method, wildcards.get("seed"))]
    found += architectures(study(wildcards), methods)
    return own(filter(None, [*found, study(wildcards).text.vocabulary]))


def architectures(chosen, methods):
    """JSON files of the sizes that models are built with.

    They are no inputs of rules: in a fresh checkout all of them are new, and nothing is to run again for that.
    """
    backbones = [own_backbone(method) for method in methods]
    found = [keys.get("architecture") for keys in backbones if isinstance(keys, dict)]
    found += [chosen.backbone.architecture] if any(map(uses_study_backbone, methods)) else []
    return json_files(found)


def json_files(names):
    """Of names of architectures, those that are files."""
    return [name for name in names if name and name.endswith(".json")]


def model_modules(chosen, method):
    """Modules of a method's model."""
    found = [full_name(MODELS, method.model), full_name(MODELS, chosen.backbone.kind)]
    own = own_backbone(method)
    if isinstance(own, dict):
        found.append(full_name(MODELS, own.get("kind", "clip")))
    return found + [method.head] * ("." in method.head)


def trained_modules(chosen, method):
    """The same, with its loss and its sampler."""
    return [
        *model_modules(chosen, method),
        full_name(LOSSES, method.training.objective),
        full_name(SAMPLERS, method.training.batch.sampler),
    ]


def heads_of(methods):
    """Heads that methods look up by name; None where a model of the user's own may look up any."""
    if any("." in method.model for method in methods):
        return None
    return [m.head for m in methods if m.model == "clip4clip" and "." not in m.head]
