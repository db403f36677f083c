#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Nanoseconds of a torch.empty and its free, from Python; one measurement for each line `go` on stdin.

`--record FOLDER` also measures the same with a recording, in turn: PyTorch's own history, or Cleave's recorder where it is in the
process. Without stacks, with Python frames, and with native ones as well; `--depth` is how many Python frames are above the
allocation, as of a model's modules. What Cleave recorded last of each is left in the folder."""
import argparse
import ctypes
import os
import statistics
import time

import torch

import proof

PAIRS = 20000
SLICES, SLICE = 12, 2000
KEPT = 100000 # entries of PyTorch's history, as its documentation has it
WARM = KEPT   # pairs, each of which makes two entries
STACKS = ("off", "python", "all")
EVERYWHERE = os.sched_getaffinity(0)


def pin(where):
    """Processors are not equally fast: the same one for all. Threads that are made from here on may run where this one may."""
    os.sched_setaffinity(0, where)


def pairs(depth, count=PAIRS):
    if depth:
        return pairs(depth - 1, count)
    empty = torch.empty
    begin = time.perf_counter_ns()
    for _ in range(count):
        empty(70000, device="cuda")
    return (time.perf_counter_ns() - begin) / count


def history(stacks):
    """PyTorch's own, which it has for its own allocator alone."""
    if stacks is None:
        torch.cuda.memory._record_memory_history(enabled=None)
    else:
        torch.cuda.memory._record_memory_history("all", context=None if stacks == "off" else "all",
                                                 stacks="python" if stacks == "off" else stacks, max_entries=KEPT)


class Recorder:
    """Cleave's, of the library that was preloaded."""

    def __init__(self, folder):
        self.folder, self.library = folder, ctypes.CDLL(None)

    def __call__(self, stacks):
        self.library.cleave_trace_stop()
        if stacks is None:
            return
        path, settings = os.path.join(self.folder, f"{stacks}.clv"), f"stacks:{stacks}"
        why = ctypes.create_string_buffer(500)
        pin(EVERYWHERE) # the recorder's thread takes no time from the one that is measured
        status = self.library.cleave_trace_start(path.encode(), settings.encode(), why, ctypes.c_size_t(len(why)))
        pin({max(EVERYWHERE)})
        if status:
            raise RuntimeError(why.value.decode())


def slices(depth):
    return statistics.quantiles(pairs(depth, SLICE) for _ in range(SLICES))[0]


def compared(record, depth):
    """What each kind of stacks adds, in the long run: when buffers have been filled once and are used again. Short slices, without
    and with, since what else the machine does comes and goes; of each the lower quartile."""
    found = {}
    for stacks in STACKS:
        without = slices(depth)
        record(stacks)
        pairs(depth, WARM)
        found[stacks] = slices(depth) - without
        record(None)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--record")
    parser.add_argument("--depth", type=int, default=0)
    args = parser.parse_args()
    pin({max(EVERYWHERE)})
    torch.cuda.init()
    pairs(args.depth)
    torch.cuda.synchronize()
    record = Recorder(args.record) if proof.preloaded() else history
    proof.rounds(go=lambda: {"pair_ns": pairs(args.depth)}, record=lambda: compared(record, args.depth))
    proof.report(backend=torch.cuda.get_allocator_backend())


if __name__ == "__main__":
    main()
