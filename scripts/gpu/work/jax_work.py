#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Calculations of random sizes in JAX, compared with NumPy; arrays live for a random while. Usage: jax_work.py SECONDS"""
import os
import random
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import proof


@jax.jit
def step(x, k):
    return jnp.sort((x * 5 + k) ^ (x >> 3))


def step_numpy(x, k):
    return np.sort((x * np.int32(5) + np.int32(k)) ^ (x >> 3))


def product(n, rng):
    a = rng.integers(-8, 8, (n, n)).astype(np.float32)
    got = np.asarray(jnp.matmul(a, a.T, precision="highest"))
    return bool((got == a @ a.T).all())  # whole numbers far below 2^24: exact in any order


def main():
    end = time.monotonic() + float(sys.argv[1])
    rng, chance = np.random.default_rng(5), random.Random(5)
    wrong, done, live = [], 0, []
    # Each size is compiled once, so a few sizes, used again and again.
    sizes = [int(2 ** chance.uniform(4, 22)) for _ in range(6)]
    while done < 40 or (time.monotonic() < end and not wrong):
        done += 1
        given = rng.integers(-2**30, 2**30, chance.choice(sizes)).astype(np.int32)
        with np.errstate(over="ignore"):
            live.append((step(jnp.asarray(given), done), step_numpy(given, done)))
        if len(live) > 24:
            got, want = live.pop(chance.randrange(len(live)))
            if not np.array_equal(np.asarray(got), want):
                wrong.append(f"step {done}: wrong contents of an array of {want.size}")
            got.delete()
        if done % 20 == 0 and not product(chance.choice([100, 257, 900]), rng):
            wrong.append(f"step {done}: wrong product")
        if wrong:
            break
    for got, want in live:
        if not np.array_equal(np.asarray(got), want):
            wrong.append(f"at the end: wrong contents of an array of {want.size}")
    device = jax.devices()[0]
    if device.platform not in ("gpu", "cuda"):
        wrong.append(f"JAX runs on {device.platform}")
    peak = (device.memory_stats() or {}).get("peak_bytes_in_use")
    proof.report(allocator=os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "default"), wrong=wrong[:5], ops=done,
                 peak_bytes=peak)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
