"""captions.txt in its many forms, and names that fit several images."""

from __future__ import annotations

import pytest

from messages import refusal
from rewind.data.formats.embeddings import ImageNames, read_caption_lines

NAMES = ImageNames(["a/one.jpg", "b/one.jpg", "two.png", "three words.jpg"], "x.npz")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("image,caption\ntwo.png,A dog, running\na/one.jpg,x", [2, 0]),
        ("two.png|A dog\ntwo\tA cat\ntwo  A cat\ntwo A cat, sitting", [2, 2, 2, 2]),
        ('id,image,caption\n7,two.png,"A dog, running"', [2]),
        ('"two.png","A ""good"" dog"', [2]),
        ("folder/two.png,x\nfolder/two.jpeg,x", [2, 2]),
        ("header\nthree words.jpg,x\n\n", [3]),
    ],
)
def test_caption_lines(tmp_path, text, rows):
    (tmp_path / "c.txt").write_text(text, encoding="utf-8")
    assert [line.image for line in read_caption_lines(tmp_path / "c.txt", NAMES)] == rows


@pytest.mark.parametrize("token", ["one.jpg", "one", "c/one.jpg"])
def test_ambiguous_names_are_refused(tmp_path, token):
    (tmp_path / "c.txt").write_text(f"two.png,x\n{token},x\n", encoding="utf-8")
    with refusal("c.txt: line 2"):
        read_caption_lines(tmp_path / "c.txt", NAMES)
