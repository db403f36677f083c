#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Nanoseconds of a torch.empty and its free, from Python; one measurement for each line `go` on stdin."""
import os
import time

import torch

import proof

PAIRS = 50000


def measure():
    empty = torch.empty
    begin = time.perf_counter_ns()
    for _ in range(PAIRS):
        empty(70000, device="cuda")
    return {"pair_ns": (time.perf_counter_ns() - begin) / PAIRS}


def main():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}) # processors are not equally fast: the same one for all
    torch.cuda.init()
    measure()
    torch.cuda.synchronize()
    proof.rounds(go=measure)
    proof.report(backend=torch.cuda.get_allocator_backend())


if __name__ == "__main__":
    main()
