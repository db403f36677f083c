#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Nanoseconds of a torch.empty and its free, from Python; one measurement for each line `go` on stdin. `--history` has PyTorch
record its own history meanwhile, with Python frames or with native ones as well; `--depth` is how many Python frames are above the
allocation, as of a model's modules."""
import argparse
import os
import time

import torch

import proof

PAIRS = 20000


def pairs(depth):
    if depth:
        return pairs(depth - 1)
    empty = torch.empty
    begin = time.perf_counter_ns()
    for _ in range(PAIRS):
        empty(70000, device="cuda")
    return (time.perf_counter_ns() - begin) / PAIRS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--history", choices=("python", "all"))
    parser.add_argument("--depth", type=int, default=0)
    args = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}) # processors are not equally fast: the same one for all
    torch.cuda.init()
    if args.history:
        torch.cuda.memory._record_memory_history("all", context="all", stacks=args.history, max_entries=100000)
    pairs(args.depth)
    torch.cuda.synchronize()
    proof.rounds(go=lambda: {"pair_ns": pairs(args.depth)})
    proof.report(backend=torch.cuda.get_allocator_backend())


if __name__ == "__main__":
    main()
