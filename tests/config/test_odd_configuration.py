"""Whatever stands in a file of keys or behind --config: it is understood, or refused in sentences with file and key."""

from __future__ import annotations

import contextlib
import copy
import datetime
import errno
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkout import ROOT
from messages import refusal
from rewind.cli.main import main
from rewind.config.load import MAX_YAML_NODES, parse_yaml
from rewind.errors import RewindError
from rewind.workflow.config import custom_rules, load_config

DEMO = (ROOT / "config/studies/demo.yaml").read_text(encoding="utf-8")
STUDY, CONFIG = "config/studies/s.yaml", "config/config.yaml"
LAST = DEMO.count("\n") + 1  # a line that is added
DIGITS = "9" * 5000
VARYING = rf"\b{LAST}\b|[\d,]+(?= bytes)"  # the example may grow
SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config/studies").mkdir(parents=True)
    for name in ("datasets", "models"):
        (tmp_path / "config" / name).symlink_to(ROOT / "config" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(content: str | bytes = DEMO, config: dict | None = None) -> None:
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    Path("config/studies/s.yaml").write_bytes(raw)
    load_config({"studies": ["s"]} | (config or {}))


def refused(*places: str, content: str | bytes = DEMO, **config: Any) -> str:
    """What is said of these places, each with its file."""
    with refusal(*places, varying=VARYING) as caught:
        load(content, config)
    return str(caught.value)


def test_as_it_is_the_study_is_sound(checkout):
    load()
    load(DEMO.encode("utf-8-sig"))
    load(DEMO.replace("title:", "title: 2020-01-01 #"))  # a date is a word


@pytest.mark.parametrize(
    "content, place",
    [
        (DEMO.encode() + "x: Zürich\n".encode("latin-1"), ""),
        (DEMO.encode("utf-16"), ""),
        (DEMO + 'x: "a\0"\n', ""),
        (DEMO + 'x: "\\0"\n', "line LAST"),
        (DEMO + 'x: "\\ud800"\n', "line LAST"),
        (DEMO + 'x: "\\e[31m"\n', "line LAST"),
        (DEMO + "\tx: 1\n", "line LAST"),
        ("", ""),
        ("a word", ""),
        ("[1, 2]", ""),
        (DEMO + "[a, b]: 1\n", "line LAST"),
        (DEMO + "? {a: 1}\n: 1\n", "line LAST"),
        (DEMO + "~: 1\n", "line LAST"),
        (DEMO + "yes: 1\n", "line LAST"),
        (DEMO + "<<: {on: 1}\n", "line LAST"),
        (DEMO + "5: 1\n", "5"),
        (DEMO.replace("methods:", "methods:\n  5: {}"), "methods.5"),
        (DEMO + "<<: 3\n", "line LAST"),
        (DEMO + "<<: {zzz: 1}\n", "zzz"),
        (DEMO + "dataset: shapes\n", "line LAST"),
        (DEMO + f"x: {'[' * 5000}{']' * 5000}\n", "line LAST"),
        (DEMO + f"x: {'{a: ' * 5000}{'}' * 5000}\n", "line LAST"),
        (DEMO + "x: &x [*x]\n", "line 3"),
        (DEMO + "x: *nope\n", "line LAST"),
        (DEMO + "x: !!int abc\n", "line LAST"),
        (DEMO + "x: !!bool abc\n", "line LAST"),
        (DEMO + "x: !!binary aGk=\n", "line LAST"),
        (DEMO + 'x: !!python/object/apply:os.system ["true"]\n', "line LAST"),
        (DEMO + f"x: {DIGITS}\n", "line LAST"),
        (DEMO + f"x: 0x{'f' * 5000}\n", "line LAST"),
        (DEMO.replace("methods:", "methods: 5\nx:"), "methods"),
        (DEMO.replace("dataset: shapes", f"dataset: {'x' * 300}"), "dataset"),
        (DEMO.replace("dataset: shapes", "dataset: a b"), "dataset"),
        (DEMO + "x: y\n" * 200_001, ""),
    ],
)
def test_a_file_is_refused_in_one_sentence_with_its_place(checkout, content, place):
    further = [f"{STUDY}: x"] * (place == "methods")
    place = f"{STUDY}: {place}" if place else STUDY
    refused(place.replace("LAST", str(LAST)), *further, content=content)


def test_aliases_that_repeat_one_another_are_not_written_out(checkout):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert f" {MAX_YAML_NODES:,} " in refused(f"{STUDY}: line 3", content=DEMO + "\n".join(lines) + "\n")


def test_what_is_no_file_is_refused(checkout):
    path = Path("config/studies/s.yaml")
    path.mkdir()
    with refusal("config/studies/s.yaml"):
        load_config({"studies": ["s"]})
    path.rmdir()
    path.symlink_to(path.name)
    with refusal("config/studies/s.yaml"):
        load_config({"studies": ["s"]})
    path.unlink()
    os.mkfifo(path)  # nobody writes into it: reading would wait forever
    with refusal("config/studies/s.yaml"):
        load_config({"studies": ["s"]})


@pytest.mark.parametrize("name", ["../x", "a b", "", "x" * 300, "s\n", "é", None, 1.5, {"a": 1}, [1], DIGITS])
def test_names_that_are_no_files(checkout, name):
    place = "config/studies/None.yaml" if name is None else f"{CONFIG}: studies"
    if isinstance(name, dict):
        place += ": \"{'a'"  # what is given has a colon, too
    assert len(refused(place, studies=[name])) < 400


@pytest.mark.parametrize(
    "command",
    [
        ["power", "{}"],
        ["rehearse", "{}"],
        ["export", "mteb", "{}", "out"],
        ["clips", "extract", "{}", "a"],
        ["verify", "{}"],
        ["evaluate", "--data", "{}", "--scores", "a.npz"],
        ["evaluate", "--data", "shapes", "--scores", "a.npz", "--option", "a=[x"],
        ["init", "{}"],
    ],
)
@pytest.mark.parametrize("name", ["../x", "a b", "x" * 300])
def test_commands_refuse_them_too(checkout, capsys, command, name):
    Path("Snakefile").touch()
    Path("config/config.yaml").write_text("studies: [demo]\n")
    assert main([part.format(name) for part in command]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") <= 3


@pytest.mark.parametrize(
    "over, place",
    [
        ("x", f"{CONFIG}: overrides"),
        (0, f"{CONFIG}: overrides"),
        ({"studies": 5}, f"{CONFIG}: overrides.studies"),
        ({"studies": {"s": [1]}}, f"{CONFIG}: overrides.studies.s"),
        ({"studies.": 1}, f"{CONFIG}: overrides"),
        ({"studies.s.training..epochs": 1}, f"{CONFIG}: overrides"),
        ({"studies": {"s": {"training.": 1}}}, f"{CONFIG}: overrides.studies.s"),
        ({"studies": {"x" * 300: {"a": 1}}}, f"{CONFIG}: overrides.studies"),
        ({"datasets": {"a b": {"a": 1}}}, f"{CONFIG}: overrides.datasets"),
        ({"a." * 3000 + "a": 1}, f"{CONFIG}: overrides"),
        ({"studies.s.training.epochs": "[x"}, f"{CONFIG}: overrides.studies.s.training.epochs: line 1"),
        ({"studies.s.training.epochs": "{"}, f"{CONFIG}: overrides.studies.s.training.epochs: line 1"),
        ({"studies.s.training.epochs": DIGITS}, f"{CONFIG}: overrides.studies.s.training.epochs: line 1"),
        ({"studies.s.training.epochs": "[" * 5000}, f"{CONFIG}: overrides.studies.s.training.epochs: line 1"),
        ({"studies.s.training.epochs": "\0"}, f"{CONFIG}: overrides.studies.s.training.epochs: line 1"),
        ({"studies.s.training.epochs": ".inf"}, f"{STUDY}: training.epochs"),
        ({"studies.s.training.epochs": "1e999"}, f"{STUDY}: training.epochs"),
        ({"studies.s.training.epochz": "1"}, f"{STUDY}: training.epochz"),
    ],
)
def test_overrides_are_refused_with_their_key(checkout, over, place):
    refused(place, overrides=over)


@pytest.mark.parametrize(
    "rules, file",
    [
        (5, ""),
        ("x", "x"),
        ({"a": 1}, ""),
        ([None], "None"),
        (["/tmp"], "/tmp"),
        (["a\0b"], r"a\x00b"),
        (["x" * 5000], "x" * 5000),
    ],
    ids=["number", "word", "block", "none", "folder", "control", "long"],
)
def test_rules_that_are_no_files(monkeypatch, rules, file):
    monkeypatch.chdir(ROOT)
    words = f"x{{5000}}|{os.strerror(errno.ENAMETOOLONG)}|embedded.*"  # the system's and Python's
    with refusal(f"{CONFIG}: custom_rules{': ' * bool(file)}{file}", varying=words):
        custom_rules({"custom_rules": rules})


# Anything at all

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 2**63, 2**64, 10**400, 1e308, float("inf"), float("nan"), "", ".", "..", "../x", "/", "~"]),
    st.floats(),
    st.text(max_size=12),
    st.just("x" * 5000),
    st.dates(),
    st.just(datetime.datetime(2020, 1, 1)),
    st.binary(max_size=4),
)
KEYS = st.one_of(st.text(max_size=8), st.integers(), st.booleans(), st.none(), st.floats(), st.dates())
NESTED = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=10
)


def places(value: Any) -> list[tuple]:
    """Paths of everything in nested values."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(), *[(name, *path) for name, part in inner for path in places(part)]]


def put(value: Any, path: tuple, other: Any) -> Any:
    if not path:
        return other
    changed = copy.deepcopy(value)
    block = changed
    for part in path[:-1]:
        block = block[part]
    block[path[-1]] = other
    return changed


def sound_or_told(content: str | bytes, config: dict | None = None) -> None:
    try:
        load(content, config)
    except RewindError as error:
        message = str(error)
        assert message.strip() and "Traceback" not in message and len(message) < 100_000
        message.encode()  # it can be printed


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(data=st.data(), name=st.sampled_from(["demo", "miniclip", "translator", "sanw"]))
def test_anything_at_any_place_of_a_study(checkout, data, name):
    study = yaml.safe_load((ROOT / f"config/studies/{name}.yaml").read_text(encoding="utf-8"))
    path = data.draw(st.sampled_from(places(study)))
    sound_or_told(yaml.safe_dump(put(study, path, data.draw(NESTED))))


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(data=st.data(), name=st.sampled_from(["shapes", "rtime", "stamps_vectors", "photos"]))
def test_anything_at_any_place_of_a_dataset(checkout, data, name):
    keys = yaml.safe_load((ROOT / f"config/datasets/{name}.yaml").read_text(encoding="utf-8"))
    path = data.draw(st.sampled_from([path for path in places(keys) if path]))
    dotted = ".".join(map(str, path[:1]))
    changed = put(keys, path, data.draw(NESTED))[path[0]]
    study = DEMO.replace("dataset: shapes", f"dataset: {name}")
    sound_or_told(study, {"overrides": {"datasets": {name: {dotted: changed}}}})


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(over=NESTED, text=st.text(max_size=30), part=st.sampled_from(["", "studies", "studies.s", "studies.s.training"]))
def test_anything_as_overrides(checkout, over, text, part):
    sound_or_told(DEMO, {"overrides": {part: over} if part else over})
    sound_or_told(DEMO, {"overrides": {"studies.s.training.epochs": text}})


@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(content=st.one_of(st.binary(max_size=80), st.text(max_size=80).map(lambda text: text.encode("utf-8"))))
def test_any_bytes_as_a_file(checkout, content):
    sound_or_told(content)


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(seed=st.integers(0, 10**6))
def test_a_study_with_letters_that_were_changed(checkout, seed):
    chance, letters = random.Random(seed), list(DEMO)
    for _ in range(chance.randint(1, 4)):
        letters[chance.randrange(len(letters))] = chance.choice("[]{}:&*!|>'\"%@`,#-?\t\n\0é~<= 0a")
    sound_or_told("".join(letters))


@given(text=st.text(alphabet="[]{}:&*!|>'\",#-?~<= 0a\n.", max_size=40))
def test_any_value_behind_a_key(text):
    with contextlib.suppress(RewindError):
        parse_yaml(text, "here")


@pytest.mark.slow
@pytest.mark.parametrize(
    "content, typed, said",
    [
        (b"studies: [demo]\nx: Z\xfcrich\n", [], "config/config.yaml: not UTF-8: row 2, "),
        (b"studies: [demo]\nstudies: [demo]\n", [], "config/config.yaml: line 2: the key 'studies' "),
        (
            b"studies: [demo]\n",
            ["--config", 'overrides={studies.demo.training.epochs: "[x"}'],
            "  overrides.studies.demo.training.epochs: line 1: ",
        ),
    ],
)
def test_snakemake_says_it_in_a_sentence(tmp_path, content, typed, said):
    for name in ("Snakefile", "workflow"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "config").mkdir()
    for name in ("studies", "datasets", "models"):
        (tmp_path / "config" / name).symlink_to(ROOT / "config" / name)
    (tmp_path / "config/config.yaml").write_bytes(content)
    command = [sys.executable, "-m", "snakemake", "-n", "--cores", "1", *typed]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert said in done.stdout + done.stderr and "Traceback" not in done.stdout + done.stderr
