#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs another program after setting max_split_size_mb:20, as some loaders do at run time. Usage: moe_split.py FILE ARGUMENT..."""
import runpy
import sys

import torch

import proof

torch.cuda.memory._set_allocator_settings("max_split_size_mb:20")
sys.argv = sys.argv[1:]
status = 0
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    status = end.code
proof.report(backend=torch.cuda.get_allocator_backend())
raise SystemExit(status)
