"""What decision 0015 rests on: the walk through memory in NumPy, in C and in Numba, on 10^8 owners.

The kernels do what the walk does in its commonest case: refuse NaN, infinity and negative numbers,
and count and sum all values up to a bound. C is compiled with the machine's gcc, for any x86-64
processor and for this one; Numba comes from an environment of its own under build/peers.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
N = 10**8
BOUND = 1.02
SOURCE = """
#include <math.h>
#include <stddef.h>
#include <stdint.h>
void walk(const double *v, size_t n, double bound, double *out) {
  const uint64_t *bits = (const uint64_t *)v;
  uint64_t top = 0; size_t count = 0; double least = INFINITY, sum = 0;
  for (size_t i = 0; i < n; i++) {
    double x = v[i];
    top = bits[i] > top ? bits[i] : top;
    least = x < least ? x : least;
    count += x <= bound;
    sum += x <= bound ? x : 0;
  }
  out[0] = (double)top; out[1] = least; out[2] = count; out[3] = sum;
}
"""
NUMBA = """
import sys, time, numpy as np
from concurrent.futures import ThreadPoolExecutor
from numba import njit
sys.path.insert(0, sys.argv[1])

@njit(nogil=True, fastmath=True)
def walk(values, bits, bound):
    top, least, count, total = np.uint64(0), np.inf, 0, 0.0
    for i in range(len(values)):
        x = values[i]
        top = max(top, bits[i])
        least = min(least, x)
        if x <= bound:
            count += 1
            total += x
    return top, least, count, total

values = np.random.default_rng(0).uniform(1, 5, int(sys.argv[2]))
bits, half = values.view(np.uint64), len(values) // 2
start = time.perf_counter()
walk(values[:9], bits[:9], 1.02)
compiled = time.perf_counter() - start
pool = ThreadPoolExecutor(2)
best = {"one": 9e9, "two": 9e9, "min": 9e9}
works = {
    "one": lambda: walk(values, bits, 1.02),
    "two": lambda: list(pool.map(lambda s: walk(values[s], bits[s], 1.02),
                                 [slice(0, half), slice(half, None)])),
    "min": lambda: np.min(values),
}
for _ in range(5):
    for name, work in works.items():
        start = time.perf_counter()
        work()
        best[name] = min(best[name], time.perf_counter() - start)
print(best["one"] / best["min"], best["two"] / best["min"], compiled)
"""


def c_ratios(values: np.ndarray, flags: list[str]) -> tuple[float, float]:
    from equilibrium import best_of

    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "walk.c"), Path(folder, "walk.so")
        source.write_text(SOURCE)
        options = ["-O3", "-ffast-math", "-shared", "-fPIC", *flags]
        subprocess.run(["gcc", *options, str(source), "-o", str(library)], check=True)
        walk = ctypes.CDLL(str(library)).walk
    walk.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double, ctypes.c_void_p]

    def run(start: int, stop: int) -> None:
        out = np.empty(4)
        walk(values.ctypes.data + 8 * start, stop - start, BOUND, out.ctypes.data)

    with ThreadPoolExecutor(2) as pool:
        one, two, scan = best_of(
            5,
            lambda: run(0, N),
            lambda: list(pool.map(run, [0, N // 2], [N // 2, N])),
            lambda: np.min(values),
        )
    return one / scan, two / scan


def numba_ratios() -> list[float]:
    environment = ROOT / "build" / "peers" / "numba"
    python = environment / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "numba"], check=True)
    done = subprocess.run(
        [str(python), "-c", NUMBA, str(ROOT), str(N)], capture_output=True, text=True, check=True
    )
    return [float(number) for number in done.stdout.split()]


def main() -> None:
    from equilibrium import best_of
    from fedbourse import equilibrium

    values = np.random.default_rng(0).uniform(1, 5, N)
    own, scan = best_of(5, lambda: equilibrium(values, reward=1.0), lambda: np.min(values))
    print("ratio to np.min of 10^8 uniform values: one thread, two threads")
    print(f"NumPy by blocks, the whole equilibrium: -, {own / scan:.2f}")
    for name, flags in {"C for any x86-64": [], "C for this processor": ["-march=native"]}.items():
        one, two = c_ratios(values, flags)
        print(f"{name}, the walk alone: {one:.2f}, {two:.2f}")
    one, two, compiled = numba_ratios()
    print(f"Numba, the walk alone: {one:.2f}, {two:.2f}; compiling it takes {compiled:.1f} s")


if __name__ == "__main__":
    main()
