"""Profiles say what Snakemake and its plugins understand: every option by its name, every value by its type.

What belongs to a plugin is looked up in the plugin itself, where it is installed.
"""

from __future__ import annotations

import importlib.util
import re
import types
import typing

import pytest
import yaml
from snakemake.cli import get_argument_parser
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

from checkout import ROOT
from rewind.workflow.stages import RULES
from rule_files import rules_text

FOLDERS = sorted(path.parent for path in (ROOT / "profiles").glob("*/config.yaml"))
ASKED = {"job_queue": "arn:aws:batch:queue", "job_role": "arn:aws:iam:role"}  # by environment variables


def read(name: str) -> dict:
    return yaml.safe_load((ROOT / "profiles" / name / "config.yaml").read_text())


def packages(profile: dict) -> list[str]:
    """Plugins that a profile names, as packages."""
    executor, storage = profile.get("executor"), profile.get("default-storage-provider")
    found = [f"snakemake_executor_plugin_{executor}"] * bool(executor)
    return [name.replace("-", "_") for name in found + [f"snakemake_storage_plugin_{storage}"] * bool(storage)]


def needs(profile: dict) -> None:
    if missing := [name for name in packages(profile) if importlib.util.find_spec(name) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")


def faults(profile: dict) -> list[str]:
    """What Snakemake's own parser, with the plugins' options in it, says against a profile."""
    parser = get_argument_parser()
    known = {option: action for action in parser._actions for option in action.option_strings}
    found, arguments = [], []
    for name, value in profile.items():
        action = known.get(f"--{name}")
        if action is None:
            found.append(f"{name}: unknown")
        elif action.nargs == 0:  # a switch
            found += [] if isinstance(value, bool) else [f"{name}: {value!r} is neither true nor false"]
            arguments += [f"--{name}"] * (value is True)
        elif isinstance(value, list):
            found += [] if action.nargs in ("+", "*") else [f"{name}: takes one value, not a list"]
            arguments += [f"--{name}", *map(str, value)]
        elif isinstance(value, dict):  # as Snakemake flattens it: rule → resource → value, or rule → threads
            flat = [
                f"{rule}:{key}={one}"
                for rule, keys in value.items()
                if isinstance(keys, dict)
                for key, one in keys.items()
            ]
            flat += [f"{rule}={one}" for rule, one in value.items() if not isinstance(one, dict)]
            arguments += [f"--{name}", *flat]
        elif isinstance(value, bool):
            found.append(f"{name}: {value!r} is no value")
        else:
            arguments += [f"--{name}", str(value)]
    if found:
        return found

    def refuse(message):
        raise ValueError(message)

    parser.error = refuse
    try:
        parsed = parser.parse_args(arguments)
        return settings_faults(profile, parsed)
    except Exception as error:  # argparse's, and those of plugins that parse values themselves
        return [str(error)]


def settings_faults(profile: dict, parsed) -> list[str]:
    """Values of the executor's settings that are not of the types that it declares, and required ones that lack."""
    if "executor" not in profile:
        return []
    plugin = ExecutorPluginRegistry().get_plugin(profile["executor"])
    settings, hints = plugin.get_settings(parsed), typing.get_type_hints(plugin.settings_cls)
    found = []
    for name, hint in hints.items():
        value, said = getattr(settings, name), f"{profile['executor']}-{name.replace('_', '-')}"
        if said in profile and not of_type(value, hint):
            found.append(f"{said}: {value!r} is not of type {hint}")
        if value is None and required(plugin.settings_cls, name):
            found.append(f"{said}: missing")
    return found


def required(settings, name: str) -> bool:
    return bool(settings.__dataclass_fields__[name].metadata.get("required"))


def of_type(value, hint) -> bool:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(of_type(value, one) for one in typing.get_args(hint))
    if origin is list:
        return isinstance(value, list) and all(of_type(one, typing.get_args(hint)[0]) for one in value)
    return isinstance(value, origin or hint)


@pytest.fixture(autouse=True)
def addresses(monkeypatch):
    for name, value in ASKED.items():
        monkeypatch.setenv(f"SNAKEMAKE_AWS_BATCH_{name.upper()}", value)


@pytest.mark.parametrize("name", [folder.name for folder in FOLDERS])
def test_every_option_of_a_profile_is_known_and_of_its_type(name):
    profile = read(name)
    needs(profile)
    assert faults(profile) == []


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("default", {"keep-goin": True}),
        ("default", {"keep-going": "yes please"}),
        ("default", {"scheduler": "nosuch"}),
        ("default", {"jobs": [1, 2]}),
        ("default", {"latency-wait": "long"}),
        ("slurm", {"slurm-init-second": 5}),
        ("slurm", {"slurm-init-seconds-before-status-checks": "soon"}),
        ("kubernetes", {"kubernetes-persistent-volume": ["a:/b"]}),
        ("kubernetes", {"kubernetes-persistent-volumes": ["no path"]}),
        ("kubernetes", {"kubernetes-cpu-scalar": "most"}),
        ("aws-batch", {"aws-batch-timeout": 60}),
        ("aws-batch", {"aws-batch-task-timeout": "a day"}),
    ],
)
def test_a_wrong_option_or_value_is_found(name, wrong):
    profile = read(name) | wrong
    needs(profile)
    found = faults(profile)
    assert len(found) == 1 and any(part in found[0] for part in (next(iter(wrong)), "persistent volume spec"))


def test_a_required_setting_that_nobody_gives_is_found():
    profile = read("aws-batch")
    needs(profile)
    del profile["aws-batch-region"]
    assert faults(profile) == ["aws-batch-region: missing"]


BATCH_MEMORY = {
    1: range(2048, 8193, 1024),
    2: range(4096, 16385, 1024),
    4: range(8192, 30721, 1024),
    8: range(16384, 61441, 4096),
    16: range(32768, 122881, 8192),
}
"""Cores → sizes in MB, as snakemake-executor-plugin-aws-batch 0.2.1 has them; it replaces any other by the smallest."""


def test_sizes_of_batch_are_those_that_its_plugin_takes():
    needs(read("aws-batch"))
    from snakemake_executor_plugin_aws_batch.constant import VALID_RESOURCES_MAPPING as TAKEN

    sizes = {cores: sorted(size for size, valid in TAKEN.items() if cores in valid) for cores in (1, 2, 4, 8, 16)}
    assert {cores: list(rewind_sizes) for cores, rewind_sizes in BATCH_MEMORY.items()} == sizes


LOCAL = {"sweep", "tune"}  # run where Snakemake does


def test_every_rule_has_a_size_that_batch_has_for_its_cores():
    profile = read("aws-batch")
    threads, resources = profile["set-threads"], profile["set-resources"]
    assert resources.keys() == RULES.keys() - LOCAL and threads.keys() <= resources.keys()
    for rule, asked in resources.items():
        assert asked["mem_mb"] in BATCH_MEMORY[threads.get(rule, 1)], rule


def rule_texts() -> dict[str, str]:
    """Rules with their text; one that uses another's with that of the other too."""
    text = rules_text()
    begun = re.split(r"^(?:rule|checkpoint) (\w+):$|^use rule (\w+) as (\w+) with:$", text, flags=re.M)
    found, inherits = {}, {}
    for name, other, own, body in zip(begun[1::4], begun[2::4], begun[3::4], begun[4::4], strict=True):
        found[name or own] = body
        inherits |= {own: other} if own else {}
    return {rule: body + found.get(inherits.get(rule, ""), "") for rule, body in found.items()}


def test_on_batch_the_rules_that_may_use_a_gpu_get_one():
    texts = {rule: text for rule, text in rule_texts().items() if rule in RULES}
    assert texts.keys() == RULES.keys()
    asking = {rule for rule, text in texts.items() if re.search(r"^        gpu=(?!0,)", text, re.M)}
    given = {rule for rule, asked in read("aws-batch")["set-resources"].items() if asked.get("_gpus")}
    assert given == asking and len(asking) > 10


def test_on_slurm_every_rule_that_only_reads_results_has_an_hour():
    """The others train, encode or decode: they take the default, or say in their rule what the method decides."""
    limits = {rule: asked["runtime"] for rule, asked in read("slurm")["set-resources"].items()}
    assert {rule for rule, minutes in limits.items() if minutes == 1440} == {"pretrain", "sweep_trial"}
    said = {rule for rule, text in rule_texts().items() if re.search(r"^        runtime=", text, re.M)}
    long = {"video_shard", "traces", "frames", "encode_dataset", "encode_vectors", "features", "sanity", "step_time"}
    long |= {"efficiency", "trec"}
    assert limits.keys() == RULES.keys() - LOCAL - long - (said - {"pretrain", "sweep_trial"})
