#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/cleave_torch.py with PyTorch on a GPU: tensors of a plan's buffers in every type, streams, regions; under `cleave run` the
stand-ins and plans in the process's memory. Says of each check whether it holds; exits 1 if one does not. Usage: torch_api.py"""
import contextlib
import gc
import json
import os
import pickle
import sys
import tempfile

import torch

import proof

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import cleave_torch # noqa: E402

MIB = proof.MIB
EXPERTS = 4
failed, held = [], 0


@contextlib.contextmanager
def check(what):
    """What is done inside holds unless it raises."""
    global held
    try:
        yield
        held += 1
    except Exception as error: # whatever it is, the next check is made as well
        failed.append(f"{what}: {type(error).__name__}: {error}"[:400])


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r}, not {expected!r}")


def load_plan():
    buffers = [{"name": name, "shape": [EXPERTS, 64, 48], "dtype": name, "bytes": EXPERTS * 64 * 48 * dtype.size}
               for name, dtype in cleave_torch.DTYPES.items()]
    buffers.append({"name": "strided", "shape": [EXPERTS, 97, 3], "strides": [300, 1, 100], "dtype": "int32", "bytes": EXPERTS * 1200})
    buffers.append({"name": "scalar", "shape": [], "dtype": "float32", "bytes": 4})
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"version": 1, "moe_layers": 3, "experts_local": EXPERTS, "buffers": buffers}, file)
        return cleave_torch.Plan(path)


def live(heap):
    gc.collect()
    return heap.tell().stats(torch.cuda.current_device())["live_blocks"]


def tensors(plan):
    """Every type as a tensor that shares the memory."""
    for name, described in plan.buffers.items():
        with check(f"{name} as a tensor"):
            buffer = plan.layer(0)[name]
            tensor = buffer.torch()
            equal(tensor.dtype, getattr(torch, described.dtype.name))
            equal((tuple(tensor.shape), tuple(tensor.stride()), tensor.data_ptr()), (buffer.shape, buffer.strides, buffer.address))
            equal(tensor.device.type, "cuda")
        with check(f"{name} filled expert by expert"):
            for e in range(described.experts):
                part = plan.layer(0).expert(name, e).torch()
                (part.view(torch.uint8) if described.dtype.size == 1 else part).fill_(e + 1)
            whole = plan.layer(0)[name].torch()
            whole = (whole.view(torch.uint8) if described.dtype.size == 1 else whole).cpu().to(torch.int64)
            for e in range(described.experts):
                equal(set((whole[e] if described.experts > 1 else whole).flatten().tolist()), {e + 1})
        if described.dtype.array:
            with check(f"{name} by its array interface"):
                equal(torch.as_tensor(plan.layer(0)[name], device="cuda").data_ptr(), plan.layer(0)[name].address)
    with check("the layer is done"):
        plan.layer(0).check()
    with check("DLPack by its protocol"):
        equal(torch.from_dlpack(plan.layer(0)["bfloat16"]).data_ptr(), plan.layer(0)["bfloat16"].address)


def lifetime(plan):
    with check("a tensor keeps its layer, and the last one gives it back"):
        heap, before = plan.heap, live(plan.heap)
        tensor = plan.layer(2)["uint8"].torch()
        equal(live(heap), before + len(plan.buffers))
        equal(plan.layer(2).release(), False)
        tensor.fill_(7)
        equal(live(heap), before + len(plan.buffers))
        del tensor
        equal(live(heap), before)


def streams(heap):
    with check("what one stream wrote is read on another"):
        writer, reader = torch.cuda.Stream(), torch.cuda.Stream()
        for number in range(20):
            array = heap.empty(32 * MIB, "uint8", stream=writer)
            with torch.cuda.stream(writer):
                tensor = array.torch()
                for _ in range(20):
                    tensor.fill_(number + 1)
            with torch.cuda.stream(reader):
                wrong = (array.torch() != number + 1).sum()
            equal(wrong.item(), 0)
            writer.wait_stream(reader)
            del tensor, array
        torch.cuda.synchronize()


def regions(heap):
    with check("a region's tensors lie in the heap, and go back"):
        torch.cuda.empty_cache()
        before = live(heap)
        with cleave_torch.region() as inside:
            kept = torch.full((64 * MIB,), 3, dtype=torch.uint8, device="cuda")
            gone = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        outside = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        spans = [(at, at + size) for at, size, _, _, state in inside.tell().list(torch.cuda.current_device()) if state == 1]
        equal([any(low <= t.data_ptr() < high for low, high in spans) for t in (kept, gone, outside)], [True, True, False])
        del gone
        torch.cuda.empty_cache()
        equal(live(heap), before + 1)
        equal(kept.min().item(), 3)
        del kept, spans
        torch.cuda.empty_cache()
        equal(live(heap), before)
    with check("a region that is out of memory says why"):
        try:
            with cleave_torch.region():
                torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            if not any("Cleave could not serve" in note for note in getattr(error, "__notes__", [])):
                raise AssertionError(f"notes: {getattr(error, '__notes__', [])}") from error
        else:
            raise AssertionError("4 TiB were had")


def stand_ins():
    tensor = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    with check("install"):
        if not {"_snapshot", "memory_snapshot", "memory_stats"} <= set(cleave_torch.install()):
            raise AssertionError("names are missing")
    with check("memory_snapshot"):
        blocks = {b["address"]: b for s in torch.cuda.memory_snapshot() for b in s["blocks"]}
        block = blocks[tensor.data_ptr()]
        equal((block["state"], block["requested_size"]), ("active_allocated", 5 * MIB))
    with check("_dump_snapshot"), tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pkl")
        torch.cuda.memory._dump_snapshot(path)
        with open(path, "rb") as file:
            equal(sorted(pickle.load(file)), ["allocator_settings", "device_traces", "external_annotations", "segments"])
    with check("memory_stats and memory_summary"):
        stats = torch.cuda.memory_stats()
        equal(stats["allocated_bytes.all.current"], torch.cuda.memory_allocated())
        if not stats["allocation.all.current"] > 0:
            raise AssertionError("no allocations")
        torch.cuda.memory_summary()
    with check("_record_memory_history"):
        torch.cuda.memory._record_memory_history()
        torch.cuda.memory._record_memory_history(enabled=None)
    with check("MemPool"), torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        torch.empty(MIB, device="cuda")
    with check("a region is everything"), cleave_torch.region() as heap:
        equal(heap.name, "pool")


def main():
    torch.zeros(1, device="cuda")
    under = cleave_torch.preload() is not None
    plan = load_plan()
    plan.bind(ahead=1)
    equal(plan.heap.name, "pool" if under else "cuda")
    tensors(plan)
    lifetime(plan)
    if under:
        stand_ins()
    else:
        streams(plan.heap)
        regions(plan.heap)
    for line in failed:
        print(f"DOES NOT HOLD: {line}")
    proof.report(checks=held + len(failed), failed=failed, backend=torch.cuda.get_allocator_backend())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
