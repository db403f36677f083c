#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two devices in torch: copies between them, and an all-reduce of two processes through NCCL, with verified results."""
import os
import random
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import proof

DEVICES = ("cuda:0", "cuda:1")


def copies(seconds, wrong):
    rng = random.Random(3)
    end = time.monotonic() + seconds
    streams = [torch.cuda.Stream(device) for device in DEVICES]
    kept, done = [], 0
    while time.monotonic() < end and not wrong:
        done += 1
        source = rng.randrange(2)
        words, ident = int(2 ** rng.uniform(0, 22)), rng.getrandbits(40)
        # Inside, each device has its stream of ours: PyTorch copies on the source's and makes the other one wait.
        with torch.cuda.stream(streams[source]):
            given = torch.arange(words, dtype=torch.int64, device=DEVICES[source]) + ident
            with torch.cuda.stream(streams[1 - source]):
                got = given.to(DEVICES[1 - source], non_blocking=True)
        kept.append((got, ident, 1 - source))
        del given, got
        if len(kept) > 40:
            for device in DEVICES:
                torch.cuda.synchronize(device)
            for got, ident, at in kept:
                want = torch.arange(got.numel(), dtype=torch.int64, device=DEVICES[at]) + ident
                if not torch.equal(got, want):
                    wrong.append(f"a copy of {got.numel() * 8} bytes to {DEVICES[at]} has wrong contents")
            kept.clear()
    return done


def member(rank, port, results):
    # NVLink multicast can disturb other users of the host; this proof does not need it.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_NVLS_ENABLE="0",
                      TORCH_SYMM_MEM_DISABLE_MULTICAST="1")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    rng = random.Random(9)
    wrong, done = [], 0
    end = time.monotonic() + 15
    for done in range(1, 401):
        words = int(2 ** rng.uniform(0, 25))
        x = (torch.arange(words, dtype=torch.float32, device="cuda") % 1000) * (rank + 1)
        other = torch.empty(words * (done % 3), dtype=torch.uint8, device="cuda") # so that addresses move
        dist.all_reduce(x)
        if not torch.equal(x, (torch.arange(words, dtype=torch.float32, device="cuda") % 1000) * 3):
            wrong.append(f"rank {rank}: the sum of {words} numbers is wrong")
        gathered = torch.empty(2 * 1000, device="cuda")
        dist.all_gather_into_tensor(gathered, torch.full((1000,), float(rank + done), device="cuda"))
        if gathered[0].item() != done or gathered[-1].item() != done + 1:
            wrong.append(f"rank {rank}: gathered wrong numbers")
        del other
        late = torch.tensor([float(time.monotonic() > end or bool(wrong))], device="cuda")
        dist.all_reduce(late) # both leave in the same round
        if late.item():
            break
    results.put((rank, done, wrong, torch.cuda.get_allocator_backend(), proof.preloaded()))
    dist.barrier()
    dist.destroy_process_group()


def main():
    wrong = []
    if torch.cuda.device_count() < 2:
        print("peers.py: fewer than two devices", file=sys.stderr)
        return 1
    copied = copies(float(sys.argv[1]), wrong)
    reachable = torch.cuda.can_device_access_peer(0, 1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    results = context.Queue()
    members = [context.Process(target=member, args=(rank, port, results), daemon=True) for rank in range(2)]
    for one in members:
        one.start()
    reduced = []
    try:
        for _ in members:
            rank, done, bad, backend, inherited = results.get(timeout=120)
            wrong += bad
            reduced.append(done)
            if not inherited:
                wrong.append(f"rank {rank} did not inherit the library")
    except Exception as error: # queue.Empty: a member died, which its exit status says
        wrong.append(f"NCCL: {type(error).__name__}")
    for one in members:
        one.join(30)
        if one.exitcode != 0:
            wrong.append(f"NCCL: a process ended with {one.exitcode}")
    proof.report(wrong=wrong[:5], copied=copied, peer_access=reachable, all_reduces=reduced,
                 backend=torch.cuda.get_allocator_backend())
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
