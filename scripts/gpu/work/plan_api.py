#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Loads MoE weights, then converts them layer by layer on a nearly full GPU, against the explicit API: sources and destinations
lie in one heap of Cleave's, and the buffers of a plan are filled expert by expert.

Defaults are Kimi-K3's sizes at TP8 (896 local experts, routed hidden 3584, local intermediate 384). Room for one layer is held
before the first source is loaded. Each layer's sources are dropped when the plan says that the layer is filled, and the next
layer's buffers come where they were. --slack-mib N takes GPU memory away beforehand, straight from the driver, so that N MiB more
than the highest live total is left. --check compares the first and the last expert of every layer with a reference made on the CPU.
Prints one JSON line.

--heap sim-backed:SIZE runs it without a GPU, on the host, with smaller --experts, --hidden and --inter. --plan FILE takes the
destinations from a plan of `cleave plan`; without, one is written that has the four buffers of the sources.
"""
import argparse
import ctypes
import gc
import json
import os
import sys
import tempfile
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import cleave_torch # noqa: E402

MIB = 1 << 20
OTHER = 25 * MIB # beside the experts of a layer
STAGE = 300 * MIB # a loader's staging buffer, gone before converting


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--experts", type=int, default=896)
    parser.add_argument("--hidden", type=int, default=3584)
    parser.add_argument("--inter", type=int, default=384)
    parser.add_argument("--slack-mib", type=int, default=-1)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--heap", help="cuda (the default), or sim-backed:SIZE")
    parser.add_argument("--plan", help="a plan of `cleave plan`")
    return parser.parse_args()


def shapes(args):
    """Of the sources by name: rows are permuted, the same in w13 and its scales, and in w2 and its scales."""
    e, h, i = args.experts, args.hidden, args.inter
    return {"w13_weight": (e, 2 * i, h // 2), "w13_weight_scale": (e, 2 * i, h // 16), "w2_weight": (e, h, i // 2),
            "w2_weight_scale": (e, h, i // 16)}


def write_plan(path, args, sizes):
    buffers = [{"name": name, "shape": shape, "dtype": "uint8", "bytes": shape[0] * shape[1] * shape[2]}
               for name, shape in sizes.items()]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"version": 1, "moe_layers": args.layers, "experts_local": args.experts, "buffers": buffers}, file)


def load_plan(args, sizes):
    """The plan, which must have the sources' buffers, in any type of one byte."""
    if args.plan:
        plan = cleave_torch.Plan(args.plan)
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            write_plan(path, args, sizes)
            plan = cleave_torch.Plan(path)
    for name, shape in sizes.items():
        buffer = plan.buffers.get(name)
        if buffer is None or buffer.shape != shape or buffer.dtype.size != 1:
            sys.exit(f"{plan.path}: {name} is {buffer}: {shape} of one byte each was expected")
    if plan.layers < args.layers:
        sys.exit(f"{plan.path}: has {plan.layers} layers, and {args.layers} were asked for")
    return plan


class Prop(ctypes.Structure):
    """CUmemAllocationProp, of device memory."""
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int), ("device", ctypes.c_int),
                ("win32", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


def take_away(bytes_left):
    """Leaves so many bytes of the device; the rest is held until the process ends."""
    free, _ = torch.cuda.mem_get_info()
    ballast = (free - bytes_left) >> 21 << 21
    if free < bytes_left:
        sys.exit(f"too many layers: {bytes_left >> 20} MiB live + slack do not fit in {free >> 20} MiB")
    handle, prop = ctypes.c_uint64(), Prop(type=1, location=1, device=torch.cuda.current_device())
    if ballast:
        status = ctypes.CDLL("libcuda.so.1").cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(ballast), ctypes.byref(prop),
                                                         ctypes.c_uint64(0))
        if status:
            sys.exit(f"cuMemCreate of {ballast} bytes: error {status}")


class Work:
    """The conversion, over one heap."""

    def __init__(self, args):
        self.args, self.sizes, self.layers = args, shapes(args), []
        self.heap = cleave_torch.Heap(args.heap or "cuda")
        self.device = "cpu" if self.heap.host else "cuda"
        self.other, self.stage = (OTHER, STAGE) if self.device == "cuda" else (4096, 4096)
        self.generator = torch.Generator(device=self.device).manual_seed(1)
        rows = {"13": self.sizes["w13_weight"][1], "2": self.sizes["w2_weight"][1]}
        self.order = {key: torch.randperm(n, device=self.device, generator=self.generator) for key, n in rows.items()}
        self.plan = load_plan(args, self.sizes)
        self.layer_bytes = sum(a * b * c for a, b, c in self.sizes.values())

    def rows(self, name):
        return self.order["13" if name.startswith("w13") else "2"]

    def warm_up(self):
        """Kernels are loaded when first used, into memory of the device: before what is free is measured."""
        if self.device == "cuda":
            scratch = torch.zeros((4, 8), dtype=torch.uint8, device="cuda")
            scratch.random_(0, 256, generator=self.generator)
            torch.index_select(scratch, 0, torch.arange(4, device="cuda"), out=torch.empty_like(scratch))
            scratch[0].cpu()
            del scratch
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

    def peak_live(self):
        """The highest live total: all sources, and the buffers of one layer more."""
        beyond = self.plan.layer_bytes - self.layer_bytes # buffers of the plan's that have no source here
        return self.args.layers * (self.layer_bytes + self.other + max(beyond, 0)) + self.layer_bytes + 4 * MIB

    def new(self, size):
        return self.heap.empty(size).torch()

    def load(self):
        for number in range(self.args.layers):
            layer = {name: self.new(shape) for name, shape in self.sizes.items()}
            layer["other"] = self.new(self.other)
            stage = self.new(self.stage) if number == 0 else None
            if self.args.check:
                for name in self.sizes:
                    layer[name].random_(0, 256, generator=self.generator)
                layer["reference"] = {(name, e): layer[name][e].cpu() for name in self.sizes for e in (0, self.args.experts - 1)}
            self.layers.append(layer)
            del stage

    def convert(self):
        for number, sources in enumerate(self.layers):
            layer = self.plan.layer(number)
            planes = {name: layer[name].torch().view(torch.uint8) for name in self.sizes}
            for e in range(self.args.experts):
                for name in self.sizes:
                    layer.expert(name, e) # the books: it is filled now
                    torch.index_select(sources[name][e], 0, self.rows(name), out=planes[name][e])
            if layer.missing().keys() & self.sizes.keys():
                layer.check()
            for name in self.sizes: # where the next layer's buffers go
                del sources[name]
            sources.update(planes)

    def wrong(self):
        """The first buffer with wrong contents; None if there is none."""
        for number, layer in enumerate(self.layers):
            for (name, e), reference in layer["reference"].items():
                if not torch.equal(reference[self.rows(name).cpu()], layer[name][e].cpu()):
                    return f"{name} of layer {number}, expert {e}"
        return None


def main():
    args = arguments()
    if not (args.heap or "cuda").startswith("sim"):
        torch.cuda.init()
        torch.zeros(1, device="cuda")
    work = Work(args)
    work.warm_up()
    if args.slack_mib >= 0 and work.device == "cuda":
        take_away(work.peak_live() + args.slack_mib * MIB)
    result, found, start, converting = "ok", {}, time.time(), None
    try:
        work.plan.bind(work.heap, ahead=1)
        work.load()
        if work.device == "cuda":
            torch.cuda.synchronize()
        converting = time.time()
        work.convert()
        if work.device == "cuda":
            torch.cuda.synchronize()
        found["convert_s"] = round(time.time() - converting, 3)
        if args.check and (wrong := work.wrong()):
            result = f"WRONG DATA in {wrong}"
    except (cleave_torch.OutOfMemory, torch.OutOfMemoryError) as error:
        result = "oom: " + str(error)[:400]
    stats = work.heap.tell().stats(0)
    names = ("live_peak_bytes", "held_peak_bytes")
    print(json.dumps({"result": result, "mode": "plan_api", "heap": work.heap.name, "layers": args.layers,
                      "slack_mib": args.slack_mib, "live_mib": work.peak_live() >> 20, "convert_s": None, **found,
                      "total_s": round(time.time() - start, 3), **{name[:-5] + "mib": stats[name] >> 20 for name in names},
                      **{name: stats[name] for name in ("failures", "frames_created", "frames_moved", "host_waits", "device_waits")}}),
          flush=True)
    work.layers.clear()
    gc.collect()
    return 0 if result == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
