"""MNIST from IDX files that the tests write: the parser, the features, and what is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedbourse.errors import InvalidFile, MissingExtra
from fedbourse.learning.data import load
from fedbourse.learning.sources.mnist import FILES, IMAGES, LABELS

if TYPE_CHECKING:
    from pathlib import Path

TRAIN, TEST = 40, 10


def idx(array: np.ndarray) -> bytes:
    lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes([0, 0, 8, array.ndim]) + lengths + array.astype(np.uint8).tobytes()


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Image i is black, but for square i of the 7 by 7."""
    images = np.zeros((TRAIN + TEST, 28, 28), dtype=np.uint8)
    for i in range(len(images)):
        row, column = divmod(i % 49, 7)
        images[i, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = 255
    return images, np.arange(len(images)) % 10


def write(folder: Path) -> Path:
    images, labels = digits()
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in zip(IMAGES, (images[:TRAIN], images[TRAIN:]), strict=True):
        (folder / name).write_bytes(idx(part))
    for name, part in zip(LABELS, (labels[:TRAIN], labels[TRAIN:]), strict=True):
        (folder / name).write_bytes(idx(part))
    return folder


def test_a_feature_is_the_mean_grey_of_a_square(tmp_path: Path) -> None:
    source = load(f"mnist:{write(tmp_path)}", seed=3)
    both = [source.pool.take(np.arange(len(source.pool))), source.buyer]
    features = np.concatenate([records.features for records in both])
    labels = np.concatenate([records.labels for records in both])
    assert features.shape == (TRAIN + TEST, 50)
    squares = features[:, :-1].argmax(axis=1)
    assert (features[:, :-1].sum(axis=1) == 1).all()
    # Each image kept its own label through both files and the split.
    expected = {(i % 49, i % 10) for i in range(TRAIN + TEST)}
    assert set(zip(squares.tolist(), labels.astype(int).tolist(), strict=True)) == expected
    assert source.feature_names[8] == "square_1_1"
    assert source.default_model == "softmax"


def test_a_square_is_averaged(tmp_path: Path) -> None:
    folder = write(tmp_path)
    images, _ = digits()
    images[:TRAIN, :4, :4] = np.arange(16).reshape(4, 4)
    (folder / IMAGES[0]).write_bytes(idx(images[:TRAIN]))
    source = load(f"mnist:{folder}")
    pool = source.pool.take(np.arange(len(source.pool)))
    assert np.unique(pool.features[:, 0])[1] == pytest.approx(7.5 / 255)


def test_the_users_cache_is_where_it_looks_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(MissingExtra, match="'fedbourse data fetch mnist'"):
        load("mnist")
    write(tmp_path / "fedbourse" / "mnist")
    assert len(load("mnist").buyer) == 10


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (IMAGES[0], b"", "first bytes are missing"),
        (IMAGES[0], b"\x1f\x8b\x08\x00" + bytes(100), "first bytes are 1f 8b 08 00"),
        (LABELS[1], idx(np.zeros((TEST, 1))), "in 1 dimensions"),
        (LABELS[1], idx(np.zeros(TEST))[:-1], "must be 18 bytes long, as its head says; found 17"),
        (LABELS[1], idx(np.full(TEST, 10)), "digits from 0 to 9; found 10"),
        (LABELS[0], idx(np.zeros(TRAIN - 1)), "one for each of the 39 labels"),
        (IMAGES[1], idx(np.zeros((TEST, 14, 14))), "found an array of shape (10, 14, 14)"),
    ],
)
def test_what_is_not_mnist_is_refused(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    write(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidFile, match=re.escape(words)):
        load(f"mnist:{tmp_path}")


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_needed(tmp_path: Path, name: str) -> None:
    (write(tmp_path) / name).unlink()
    with pytest.raises(MissingExtra, match=re.escape(f"{tmp_path / name} is not there")):
        load(f"mnist:{tmp_path}")
