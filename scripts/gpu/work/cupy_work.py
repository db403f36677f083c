#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random work in CuPy with verified contents. Usage: cupy_work.py default|async SECONDS"""
import random
import sys
import time

import cupy
import numpy

import proof
from proof import GIB, MIB


def main():
    kind, seconds = sys.argv[1], float(sys.argv[2])
    if kind == "async":
        pool = cupy.cuda.MemoryAsyncPool()
        cupy.cuda.set_allocator(pool.malloc)
    rng = random.Random(11)
    streams = [cupy.cuda.Stream.null] + [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    ramp = cupy.arange(32 * MIB, dtype=cupy.int64)
    cupy.cuda.Device().synchronize()
    bad = []
    for stream in streams:
        with stream:
            bad.append(cupy.zeros((), dtype=cupy.int64))
    blocks, live, done, wrong = [], 0, 0, []
    end = time.monotonic() + seconds
    while time.monotonic() < end and not wrong:
        for _ in range(300):
            done += 1
            at = rng.randrange(len(streams))
            if not blocks or (live < 12 * GIB and rng.random() < 0.52):
                words = min(ramp.size, max(1, int(2 ** rng.uniform(0, 25))))
                with streams[at]:
                    array = cupy.empty(words, dtype=cupy.int64)
                    ident = rng.getrandbits(50)
                    cupy.add(ramp[:words], ident, out=array)
                blocks.append((array, ident, at))
                live += array.nbytes
            else:
                n = rng.randrange(len(blocks))
                blocks[n], blocks[-1] = blocks[-1], blocks[n]
                array, ident, at = blocks.pop()
                with streams[at]:
                    bad[at] += ((array - ramp[:array.size]) != ident).any()
                    live -= array.nbytes
                    del array
        cupy.cuda.Device().synchronize()
        for at, found in enumerate(bad):
            if int(found):
                wrong.append(f"wrong contents on stream {at}")
        if rng.random() < 0.1:
            (pool if kind == "async" else cupy.get_default_memory_pool()).free_all_blocks()
    # Something that a library computes, with workspaces of its own.
    chance = numpy.random.default_rng(1)
    x = cupy.asarray(chance.standard_normal((700, 700)))
    inverse = cupy.linalg.inv(x)
    error = float(cupy.abs(x @ inverse - cupy.eye(700)).max())
    if not error < 1e-6:
        wrong.append(f"a matrix times its inverse is off by {error}")
    mixed = chance.integers(0, 1 << 40, 4 * MIB)
    if not numpy.array_equal(cupy.asnumpy(cupy.sort(cupy.asarray(mixed))), numpy.sort(mixed)):
        wrong.append("a sorted array is not in order")
    proof.report(pool=kind, wrong=wrong, ops=done, seconds=seconds)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
