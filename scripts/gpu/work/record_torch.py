#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Nanoseconds of a torch.empty and its free under a few Python frames, with and without PyTorch's own history; one measurement
for each line `go` on stdin. `--history MODE`: off, all (native and Python frames) or python."""
import argparse
import os
import time

import torch

import proof

PAIRS = 20000
DEPTH = 6 # Python frames above the allocation, as of a model's modules


def pairs(depth):
    if depth:
        return pairs(depth - 1)
    empty = torch.empty
    begin = time.perf_counter_ns()
    for _ in range(PAIRS):
        empty(70000, device="cuda")
    return (time.perf_counter_ns() - begin) / PAIRS


def measure():
    return {"pair_ns": pairs(DEPTH)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--history", choices=("off", "all", "python"), default="off")
    history = parser.parse_args().history
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}) # processors are not equally fast: the same one for all
    torch.cuda.init()
    if history != "off":
        torch.cuda.memory._record_memory_history("all", context="all", stacks=history, max_entries=100000)
    measure()
    torch.cuda.synchronize()
    proof.rounds(go=measure)
    proof.report(backend=torch.cuda.get_allocator_backend())


if __name__ == "__main__":
    main()
