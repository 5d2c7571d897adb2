"""The files of this folder, made out of the full ones: ``python tests/golden/make.py FULL``.

FULL is a folder with the arrays as the originals' code gave them (README.md says how to make it). What is left out can
be computed, or is no part of any comparison:

- values that are multiples of 1/2048 are kept as whole numbers (their high and low bytes apart, which compresses);
- token embeddings keep the rows that the captions use;
- normalised frames are left out, since they follow from the frames in bytes;
- towers and inputs that several of CLIP4Clip's files share are kept once;
- of a large gradient every thirteenth value is kept, and the largest magnitude. The 2-norms of all gradients stay.

``golden_numbers.py`` puts them together again. Every file is read back and must have the full one's values, all of them
(a minus zero among whole numbers is a zero).
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from golden_numbers import GRID, Selected, load  # noqa: E402

STEP = 13  # shares no divisor with the widths of any tensor, so that every row and every column is met
LARGE = 4096  # values: gradients above are thinned out
ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever they are written

SHARED = {
    "open": ["open_meanP", "open_seqLSTM", "open_seqTransf", "open_tightTransf"],
    "open2": ["open2_seqTransf", "open2_tightTransf"],
}
WHOLE = {
    "clip4clip/bertadam_open.npz": "clip4clip/bertadam.npz",
    "gradcache/open.npz": "gradcache.npz",
    "miniclip/open_imgproj.npz": "miniclip_projection.npz",
    "wti/open.npz": "wti.npz",
    "xpool/open.npz": "xpool.npz",
}
AS_IT_IS = {
    "viclip/preprocess.npz": "viclip_preprocess.npz",
    "translator/open.npz": "translator.npz",
    "sanw/open.npz": "sanw.npz",
    "miniclip/open.npz": "miniclip.npz",
    "hnac/open.npz": "hnac.npz",
    "clip4clip/metrics.json": "clip4clip/metrics.json",
    "clip4clip/loaders.json": "clip4clip/loaders.json",
    "miniclip/open.json": "miniclip.json",
    "ranking/open.json": "ranking.json",
    "translator/open.json": "translator.json",
    "viclip/frame_pick.json": "viclip_frame_pick.json",
} | {
    f"translator/challenge_open/{name}": f"challenge/{name}"
    for name in (
        "captions.txt",
        "expected.json",
        "submission_example_embeddings.npy",
        "test.clean.npz",
        "train.npz",
    )
}


def read(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """A compressed npz whose bytes depend on the arrays alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", ZIP_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, buffer.getvalue())


def on_grid(array: np.ndarray) -> bool:
    if array.dtype != np.float32 or array.ndim == 0:
        return False
    scaled = array * np.float32(GRID)
    return bool((np.abs(scaled) < 2**15).all() and (scaled == np.round(scaled)).all())


def smaller(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """How one array is kept."""
    if name.startswith("grad/") and array.size > LARGE:
        kept = array.reshape(-1)[::STEP]
        return {f"every/{name}": kept, f"every/{name}/step": STEP, f"every/{name}/largest": np.abs(array).max()}
    if not on_grid(array):
        return {name: array}
    whole = (array * GRID).astype(np.int16)
    return {f"grid/{name}": np.stack([(whole & 255).astype(np.uint8), (whole >> 8 & 255).astype(np.uint8)])}


def used_rows(arrays: dict[str, np.ndarray], table: str, ids: str) -> dict[str, np.ndarray]:
    """``arrays`` with the rows of ``table`` alone that ``ids`` names."""
    rows = np.unique(arrays[ids]).astype(np.int64)
    kept = {name: value for name, value in arrays.items() if name != table}
    return kept | {
        f"rows/{table}/numbers": rows,
        f"rows/{table}/shape": np.array(arrays[table].shape),
        f"rows/{table}": arrays[table][rows],
    }


def without_video(arrays: dict[str, np.ndarray], video: np.ndarray) -> dict[str, np.ndarray]:
    """``arrays`` with the frames that are shown (not padding), in place of the normalised frames."""
    shown = video.reshape(*arrays["in/frames_u8"].shape[:2], -1).any(-1)
    return {name: value for name, value in arrays.items() if name != "in/video"} | {"in/shown": shown}


def write_smaller(path: Path, arrays: dict[str, np.ndarray]) -> None:
    write(path, {key: value for name, array in arrays.items() for key, value in smaller(name, array).items()})


def clip4clip(source: Path, out: Path) -> None:
    for group, names in SHARED.items():
        files = {name: read(source / f"clip4clip/{name}.npz") for name in names}
        first = files[names[0]]
        common = {
            name: value
            for name, value in first.items()
            if name.startswith(("state/clip.", "in/"))
            and all(
                np.array_equal(value, file.get(name)) and value.dtype == file[name].dtype for file in files.values()
            )
        }
        towers = used_rows(common, "state/clip.token_embedding.weight", "in/input_ids")
        write_smaller(out / f"clip4clip/{group}_towers.npz", without_video(towers, common["in/video"]))
        for name, file in files.items():
            write_smaller(
                out / f"clip4clip/{name}.npz", {key: value for key, value in file.items() if key not in common}
            )


def viclip(source: Path, out: Path) -> None:
    arrays = read(source / "viclip/open.npz")
    kept = used_rows(arrays, "state/text_encoder.token_embedding.weight", "in/token_ids")
    write_smaller(out / "viclip.npz", without_video(kept, arrays["in/video"]))


def initialisation(source: Path, out: Path) -> None:
    """What CLIP4Clip's parameters start from, of the files that are here."""
    whole = json.loads((source / "clip4clip/init.json").read_text())
    kept = {name: whole[name] for names in SHARED.values() for name in names}
    (out / "clip4clip/init.json").write_text(json.dumps(kept, indent=1) + "\n")


def check(full: dict[str, np.ndarray], name: str) -> None:
    """Refuse a small file that does not give the full one's values."""
    found = load(name)
    for key, wanted in full.items():
        if key in found.selections:
            chosen: Selected = found.selected(key)
            same = np.array_equal(chosen.values, wanted.reshape(-1)[:: chosen.step])
        else:
            got = found[key]
            if key.endswith("token_embedding.weight"):
                ids = np.unique(full["in/input_ids" if "in/input_ids" in full else "in/token_ids"])
                got, wanted = got[ids], wanted[ids]
            same = (
                got.dtype == wanted.dtype
                and got.shape == wanted.shape
                and np.array_equal(got, wanted, equal_nan=got.dtype.kind == "f")
            )
        if not same:
            raise SystemExit(f"{name}: {key} would not be what it was; nothing is wrong with the full file.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("full", type=Path, help="the folder with the full files")
    source = parser.parse_args().full
    for full, small in AS_IT_IS.items():
        (HERE / small).parent.mkdir(exist_ok=True)
        shutil.copyfile(source / full, HERE / small)
    text = (source / "translator/challenge_open/submission_example.csv").read_bytes()
    (HERE / "challenge/submission_example.csv.gz").write_bytes(gzip.compress(text, mtime=0))
    for full, small in WHOLE.items():
        write(HERE / small, read(source / full))
        check(read(source / full), small)
    clip4clip(source, HERE)
    viclip(source, HERE)
    initialisation(source, HERE)
    for name in (name for names in SHARED.values() for name in names):
        check(read(source / f"clip4clip/{name}.npz"), f"clip4clip/{name}.npz")
    check(read(source / "viclip/open.npz"), "viclip.npz")
    files = [path for path in HERE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    print(f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
