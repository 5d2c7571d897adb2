"""Overrides with quotes, dollar signs and letters of any script reach jobs that start behind two shells."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from snakemake.cli import parse_config
from snakemake_interface_executor_plugins.utils import format_cli_arg

from rewind.provenance import decode_config, encode_config
from startup_lines import STARTUP

SAY = "import json, sys; print(json.dumps(sys.argv[2:]))"
TITLES = ["plain", "it's $HOME", "\"both\" of 'them'", "`date` $(date) \\n", "größer, 雪: x", "two\nlines"]


def behind_shells(arguments: list[str]) -> list[str]:
    """What a job gets: Snakemake quotes as Python does, the plugin puts that into ``sbatch --wrap="…"``."""
    inner = f"{sys.executable} -c '{SAY}' {format_cli_arg('--config', arguments)}".replace('"', '\\"')
    done = subprocess.run(f'printf %s "{inner}" | sh', shell=True, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("title", TITLES)
def test_what_was_typed_reaches_the_job(title):
    config = {"studies": ["demo"], "overrides": {"studies": {"demo": {"title": title, "seeds": [0, 1]}}}}
    typed = ["studies=[demo]", f"overrides={json.dumps(config['overrides'], ensure_ascii=False)}", "theirs=x"]
    received = behind_shells(encode_config(typed, config))
    assert received[0] == "studies=[demo]" and received[2] == "theirs=x"
    job = parse_config(received)
    decode_config(job)
    assert job["overrides"]["studies"]["demo"]["title"] == title


def test_without_it_they_do_not():
    typed = ['overrides={a: "it\'s $HOME"}']
    with pytest.raises(subprocess.CalledProcessError):
        behind_shells(typed)
    with pytest.raises(AssertionError):
        assert behind_shells(["overrides={a: $HOME}"]) == ["overrides={a: $HOME}"]


def test_a_plain_value_stays_as_it_was_typed():
    typed = ["overrides={studies.demo.training.epochs: 2, datasets.shapes.video.fps: 4}", "note=it's theirs"]
    assert encode_config(typed, {}) == typed


def test_keys_of_the_files_stay_beside_those_that_were_typed():
    config = {"overrides": {"studies": {"demo": {"seeds": [0]}}, "datasets.shapes.title": "it's"}}
    (sent,) = encode_config(['overrides={datasets.shapes.title: "it\'s"}'], config)
    job = parse_config([sent])
    decode_config(job)
    assert job == config


@pytest.mark.slow
def test_snakemake_hands_down_what_is_proof(tmp_path):
    """In a workflow of its own, whose job is a process of Snakemake's behind the shell that Snakemake starts."""
    (tmp_path / "Snakefile").write_text(
        f"{STARTUP}\n"
        'rule all:\n    output: "out.yaml"\n    run:\n        import yaml\n'
        '        open(output[0], "w").write(yaml.safe_dump(config))\n'
    )
    title = 'it\'s "5 $HOME"'
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--quiet", "all", "--config"]
    given = f"overrides={json.dumps({'studies.demo.title': title})}"
    done = subprocess.run([*command, given], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert yaml.safe_load(Path(tmp_path / "out.yaml").read_text()) == {"overrides": {"studies.demo.title": title}}
