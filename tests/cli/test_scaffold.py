"""Files that commands write into the user's folder: all or none, and never over another file."""

from __future__ import annotations

from pathlib import Path

import pytest

from messages import refusal
from rewind.cli import scaffold
from rewind.cli.scaffold import refuse_overwriting, restore_files, write_files


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_a_check_refuses_is_taken_back_and_the_error_is_its_own() -> None:
    old, new, kept = Path("old.yaml"), Path("a/new.yaml"), Path("kept.csv")
    old.write_text("before\n")
    kept.write_text("mine\n")
    texts = {old: "after\n", new: "new\n", kept: "other\n"}
    with pytest.raises(KeyboardInterrupt), write_files(texts, replaced=[old]) as backups:
        assert backups == {old: "before\n", new: None}, "what is not to be replaced is not written"
        assert (old.read_text(), new.read_text(), kept.read_text()) == ("after\n", "new\n", "mine\n")
        raise KeyboardInterrupt
    assert old.read_text() == "before\n" and kept.read_text() == "mine\n" and not new.exists()


def test_a_full_disk_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = Path("old.yaml"), Path("new.yaml")
    old.write_text("before\n")
    write = scaffold.write_text

    def full(path: Path, text: str) -> None:
        if path == new:
            raise OSError(28, "No space left on device", str(path))
        write(path, text)

    monkeypatch.setattr(scaffold, "write_text", full)
    with pytest.raises(OSError, match="No space"), write_files({old: "after\n", new: "new\n"}, replaced=[old, new]):
        raise AssertionError("the block is not reached")
    assert old.read_text() == "before\n" and not new.exists()


def test_files_can_be_restored_later() -> None:
    old, new = Path("old.yaml"), Path("new.yaml")
    old.write_text("before\n")
    with write_files({old: "after\n", new: "new\n"}, replaced=[old]) as backups:
        pass
    restore_files(backups)
    assert old.read_text() == "before\n" and not new.exists()


def test_folders_that_were_made_for_files_go_with_them() -> None:
    Path("config").mkdir()
    Path("config/mine.yaml").write_text("mine\n")
    with write_files({Path("config/studies/new.yaml"): "new\n", Path("made/here/new.csv"): "new\n"}) as backups:
        pass
    restore_files(backups)
    assert sorted(map(str, Path().rglob("*"))) == ["config", "config/mine.yaml"]


def test_every_file_that_would_be_lost_is_named() -> None:
    study, table, link = Path("s.yaml"), Path("t.csv"), Path("l.yaml")
    study.write_text("a: 1\nb: 2\n")
    table.write_text("x\n")
    link.symlink_to("nowhere")
    refuse_overwriting({study: "# the same values\nb: 2\na: 1\n", table: "x\n", Path("new.csv"): ""}, "--name NAME")
    with refusal("s.yaml") as refused:
        refuse_overwriting({study: "a: 2\n", table: "y\n", link: "a: 1\n"}, "--name NAME", "Or use --add.")
    lines = str(refused.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["s.yaml", "t.csv", "l.yaml"]
    assert "--name NAME" in lines[0] and lines[-1].endswith(" Or use --add.")
