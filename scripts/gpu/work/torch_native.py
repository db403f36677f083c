#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What PyTorch's own allocator offers and `backend:cudaMallocAsync` does not: tensors shared between processes, memory
snapshots, and MemPool."""
import time

import torch
import torch.multiprocessing as mp

import proof
from proof import MIB


def pattern(words, ident):
    return torch.arange(words, dtype=torch.int64, device="cuda") * 3 + ident


def borrower(inbox, outbox):
    """Another process: verifies each tensor it is sent, writes into it, and says so; then lends its own."""
    while (item := inbox.get()) is not None:
        ident, tensor = item
        same = torch.equal(tensor, pattern(tensor.numel(), ident))
        tensor.mul_(2)
        torch.cuda.synchronize()
        outbox.put((ident, same))
        del item, tensor
    mine = pattern(MIB, 77)
    torch.cuda.synchronize()
    outbox.put(mine)
    inbox.get()
    outbox.put((torch.equal(mine, pattern(MIB, 78)), proof.preloaded()))


def share(wrong):
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=borrower, args=(inbox, outbox), daemon=True)
    child.start()
    sent = 0
    keep = []
    for ident in range(1, 33):
        words = (ident * 7919) % (2 * MIB) + 1
        tensor = pattern(words, ident)
        keep.append(tensor[words // 3:] if ident % 4 == 0 else tensor)
        lent = keep[-1]
        if ident % 4 == 0: # a view that does not start where its block does
            lent.copy_(pattern(lent.numel(), ident))
        torch.cuda.synchronize()
        inbox.put((ident, lent))
        got, same = outbox.get(timeout=60)
        sent += 1
        if got != ident or not same:
            wrong.append(f"tensor {ident} arrived with wrong contents")
        if not torch.equal(lent, pattern(lent.numel(), ident) * 2):
            wrong.append(f"tensor {ident} came back with wrong contents")
    inbox.put(None)
    theirs = outbox.get(timeout=60)
    if not torch.equal(theirs, pattern(MIB, 77)):
        wrong.append("the other process's tensor has wrong contents")
    theirs.add_(1)
    torch.cuda.synchronize()
    inbox.put("done")
    same, inherited = outbox.get(timeout=60)
    if not same:
        wrong.append("the other process does not see what was written into its tensor")
    del theirs
    child.join(30)
    if child.exitcode != 0:
        wrong.append(f"the other process ended with {child.exitcode}")
    return sent, inherited


def snapshot(wrong):
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(max_entries=100000)
    kept = [torch.full((n * 1000,), n, device="cuda") for n in range(1, 50)]
    del kept[::2]
    torch.cuda.synchronize()
    state = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    total = sum(segment["total_size"] for segment in state["segments"])
    if total != torch.cuda.memory_reserved():
        wrong.append(f"snapshot: segments of {total} bytes, {torch.cuda.memory_reserved()} reserved")
    actions = {entry["action"] for trace in state["device_traces"] for entry in trace}
    if not {"alloc", "free_completed"} <= actions:
        wrong.append(f"snapshot: actions {sorted(actions)}")
    return len(state["segments"])


def pool(wrong):
    """Blocks of a MemPool are apart from those of the default pools and come back when it is gone."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    mine = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(mine):
        inside = [pattern(MIB, n) for n in range(8)]
    outside = [pattern(MIB, n) for n in range(8)]
    for n in range(8):
        if not torch.equal(inside[n], pattern(MIB, n)) or not torch.equal(outside[n], pattern(MIB, n)):
            wrong.append(f"MemPool: tensor {n} has wrong contents")
    segments = [(s["address"], s["total_size"]) for s in mine.snapshot()]
    held = [any(a <= t.data_ptr() < a + size for a, size in segments) for t in inside + outside]
    if held != [True] * 8 + [False] * 8:
        wrong.append(f"MemPool: {held} lie in it")
    del inside, outside, mine
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    if torch.cuda.memory_reserved() > before:
        wrong.append(f"MemPool: {torch.cuda.memory_reserved() - before} bytes did not come back")
    return len(segments)


def main():
    wrong = []
    begin = time.monotonic()
    torch.cuda.init()
    shared, inherited = share(wrong)
    segments = snapshot(wrong)
    pool_segments = pool(wrong)
    proof.report(backend=torch.cuda.get_allocator_backend(), wrong=wrong[:5], shared=shared, child_preloaded=inherited,
                 segments=segments, pool_segments=pool_segments, seconds=round(time.monotonic() - begin, 1))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
