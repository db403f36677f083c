#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs another program with all of its tensors in one static arena. Usage: static_arena.py LIBRARY FILE ARGUMENT...
Prints a line RESULT with the most that the arena had to hold. ARENA_BYTES in the environment is its size."""
import ctypes
import runpy
import sys

import torch

import proof

library, sys.argv = sys.argv[1], sys.argv[2:]
torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(library, "arena_alloc", "arena_free"))
# What PyTorch does not say of such an allocator.
torch.cuda.memory_stats = lambda *_: {}
torch.cuda.max_memory_reserved = lambda *_: 0
torch.cuda.empty_cache = lambda: None
status = 0
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    status = end.code
arena = ctypes.CDLL(library)
arena.arena_top.restype = ctypes.c_size_t
proof.report(top=arena.arena_top())
raise SystemExit(status)
