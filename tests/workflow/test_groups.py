"""Which jobs share a submission on a cluster: short ones, and never one that trains or encodes."""

from __future__ import annotations

import re

import pytest

from mini_study import DATA, Workflow

pytestmark = pytest.mark.slow

BEHIND_SCORES = {"ranks", "metrics", "statistics", "order_table", "blind_table", "probe_table"}
BEHIND_SCORES |= {"tables", "figures", "examples", "twin_figure", "page"}
BY_GROUP = {"group_results", "group_figure", "order_figure"}


@pytest.fixture(scope="module")
def workflow(tmp_path_factory) -> Workflow:
    return Workflow(tmp_path_factory.mktemp("groups"))


def groups(text: str) -> dict[str, dict[str, str]]:
    """Group → rule → its resources, of a dry-run."""
    found: dict[str, dict[str, str]] = {}
    group = ""
    for line in text.splitlines():
        if match := re.search(r"Group job (\w+) ", line):
            group = match[1]
        elif line and not line.startswith(" "):
            group = ""
        elif group and (match := re.match(r"    rule (\w+):", line)):
            rule = match[1]
            found.setdefault(group, {})[rule] = ""
        elif group and line.startswith("        resources: "):
            found[group][rule] = line
    return found


def test_short_jobs_share_a_submission_and_no_other_does(workflow):
    found = groups(workflow.run("-n", "--workflow-profile", "profiles/default"))
    assert found.keys() == {"prepare_shapes", "report_mini"}
    assert found["prepare_shapes"].keys() == {*DATA, "groups"}
    assert found["report_mini"].keys() == BEHIND_SCORES | BY_GROUP
    for rules in found.values():
        for rule, resources in rules.items():
            assert "gpu=" not in resources, rule
            assert "runtime=" not in resources or "runtime=60" in resources, (rule, "what may take longer runs alone")


def test_the_jobs_of_many_clips_run_side_by_side(workflow):
    over = "overrides={datasets.shapes.video.shards: 3}"
    found = groups(workflow.run("-n", "--config", over))
    assert found["prepare_shapes"].keys() == {"sources", "inventory"}
    assert found["captions_shapes"].keys() == {"videos", "captions", "groups"}
    assert not any("video_shard" in rules for rules in found.values())
