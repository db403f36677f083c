#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sixty CUDA graphs of a decode step with growing batch, captured in a loop as serving engines do: memory over the base,
cost of a launch, and whether replays are right, also when two streams launch the graphs in turn. Commands on stdin:
capture, time, turns (each stream waits for the other), overlap (no stream waits), memory, end."""
import os
import statistics
import time

import torch

import proof
from proof import MIB

WIDTH = 4096
LAYERS = 8
GRAPHS = 60
LAUNCHES = 50
BATCHES = 20


class Decode:
    def __init__(self):
        torch.manual_seed(1)
        with torch.device("cuda"):
            self.layers = [torch.nn.Linear(WIDTH, WIDTH, dtype=torch.bfloat16) for _ in range(LAYERS)]
        self.given = torch.randn(8 * GRAPHS, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        self.graphs, self.results, self.sizes = [], [], []
        with torch.cuda.stream(self.streams[0]):
            for rows in (8 * GRAPHS, 8):
                self.step(self.given[:rows])
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.base = self.used()

    def step(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)) * 1.5 + x * 0.5
        return x

    @staticmethod
    def used():
        free, total = torch.cuda.mem_get_info()
        return total - free

    def over_base(self):
        torch.cuda.synchronize()
        return (self.used() - self.base) / MIB

    def capture(self):
        torch.cuda.synchronize()
        self.base = self.used()
        pool = torch.cuda.graph_pool_handle()
        begin = time.monotonic()
        for rows in range(8 * GRAPHS, 0, -8):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                result = self.step(self.given[:rows])
            self.graphs.append(graph)
            self.results.append(result)
            self.sizes.append(rows)
        seconds = time.monotonic() - begin
        captured = self.over_base()
        for graph in self.graphs:
            graph.replay()
        return {"capture_s": seconds, "captured_mib": captured, "replayed_mib": self.over_base()}

    def time(self):
        """On one processor, the same for the process that this one is compared with: they are not equally fast."""
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {max(allowed)})
        try:
            return self.time_here()
        finally:
            os.sched_setaffinity(0, allowed)

    def time_here(self):
        found = {}
        for name, graph in (("big", self.graphs[0]), ("small", self.graphs[-1])):
            host, device = [], []
            for _ in range(BATCHES):
                first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                torch.cuda.synchronize()
                first.record()
                begin = time.perf_counter_ns()
                for _ in range(LAUNCHES):
                    graph.replay()
                host.append((time.perf_counter_ns() - begin) / LAUNCHES / 1e3)
                last.record()
                torch.cuda.synchronize()
                device.append(first.elapsed_time(last) * 1e3 / LAUNCHES)
            found[f"host_{name}_us"] = statistics.median(host)
            found[f"device_{name}_us"] = statistics.median(device)
        return found

    def replays(self, wait):
        """New input, each graph launched on the next of two streams, and every result compared with eager execution."""
        worst, wrong = 0.0, 0
        for seed in range(4):
            torch.manual_seed(100 + seed)
            self.given.copy_(torch.randn_like(self.given))
            wanted = [self.step(self.given[:rows]) for rows in self.sizes]
            for result in self.results:
                result.zero_()
            torch.cuda.synchronize()
            for at, graph in enumerate(self.graphs):
                stream = self.streams[at % 2]
                if wait:
                    stream.wait_stream(self.streams[1 - at % 2])
                with torch.cuda.stream(stream):
                    graph.replay()
            torch.cuda.synchronize()
            for result, want in zip(self.results, wanted):
                error = (torch.linalg.vector_norm(result.float() - want.float()) /
                         torch.linalg.vector_norm(want.float())).item()
                wrong += not error < 0.02 # not a number is wrong, too
                worst = max(worst, error)
            del wanted
        return {"compared": 4 * GRAPHS, "wrong": wrong, "worst": worst}

    def pairs(self):
        """The two largest, on two streams, again and again: with shared memory the second one must wait for the first."""
        wrong = 0
        torch.manual_seed(50)
        self.given.copy_(torch.randn_like(self.given))
        wanted = [self.step(self.given[:rows]) for rows in self.sizes[:2]]
        for _ in range(40):
            for result in self.results[:2]:
                result.zero_()
            torch.cuda.synchronize()
            for at in range(2):
                with torch.cuda.stream(self.streams[at]):
                    self.graphs[at].replay()
            torch.cuda.synchronize()
            for result, want in zip(self.results, wanted):
                error = torch.linalg.vector_norm(result.float() - want.float()) / torch.linalg.vector_norm(want.float())
                wrong += not error.item() < 0.02
        return {"compared": 80, "wrong": wrong}


@torch.no_grad()
def main():
    decode = Decode()
    proof.rounds(capture=decode.capture, time=decode.time, turns=lambda: decode.replays(True),
                 overlap=lambda: decode.replays(False), pairs=decode.pairs, memory=lambda: {"mib": decode.over_base()})
    proof.report(backend=torch.cuda.get_allocator_backend(), peak_reserved_mib=torch.cuda.max_memory_reserved() // MIB)


if __name__ == "__main__":
    main()
