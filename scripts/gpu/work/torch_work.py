#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random work in torch whose contents are verified on the GPU, and whose memory statistics are compared with own books.

Every block holds a pattern of its own at each word: (index + id of the block). It is written by a kernel on the block's
stream and compared, by kernels again, before the block is freed, lent to another stream, or copied. So two blocks that
overlap, a block that is reused before another stream has read it, and memory that moves are all seen.
"""
import argparse
import gc
import random
import time

import torch

import proof
from proof import GIB, MIB

BIGGEST = GIB


def rounded(size):
    return (size + 511) & ~511


class Block:
    def __init__(self, tensor, ident, stream):
        self.tensor, self.ident, self.stream = tensor, ident, stream
        self.bytes = tensor.numel()
        self.words = self.bytes // 8

    def body(self):
        return self.tensor[:self.words * 8].view(torch.int64)

    def tail(self):
        return self.tensor[self.words * 8:]


class Graph:
    """A captured calculation with temporaries; `last` is the event after its latest launch."""

    def __init__(self, graph, given, result, stream):
        self.graph, self.given, self.result, self.stream = graph, given, result, stream
        self.last = stream.record_event()
        self.bytes = given.numel() * 8


def calculation(x):
    a = x * 3
    b = a + 7
    c = a ^ b
    del a, b
    return c * 5 + x


class Work:
    def __init__(self, args):
        self.args = args
        self.rng = random.Random(args.seed)
        self.native = torch.cuda.get_allocator_backend() == "native"
        self.streams = [torch.cuda.current_stream()] + [torch.cuda.Stream() for _ in range(args.streams - 1)]
        words = BIGGEST // 8
        self.ramp = torch.arange(words, dtype=torch.int64, device="cuda")
        self.host_ramp = torch.arange(4 * MIB // 8, dtype=torch.int64)
        torch.cuda.synchronize()
        self.scratch, self.bad, self.bad_graph = [], [], []
        for stream in self.streams:
            with torch.cuda.stream(stream):
                self.scratch.append(torch.empty(words, dtype=torch.int64, device="cuda"))
                self.bad.append(torch.zeros((), dtype=torch.int64, device="cuda"))
                self.bad_graph.append(torch.zeros((), dtype=torch.int64, device="cuda"))
        self.blocks, self.graphs, self.readbacks = [], [], []
        self.live = self.live_rounded = self.peak = 0
        self.base = 0
        self.cap, self.low, self.high = GIB, 0, 26
        self.count = dict.fromkeys(("ops", "allocs", "lends", "clones", "pinned", "captures", "replays", "emptied", "quiet",
                                    "oom_wanted", "oom_else"), 0)
        self.bytes_written = 0
        self.foreign = []
        self.wrong = []
        self.off_low = self.off_high = 0
        self.left_mib = []

    # Blocks

    def allocate(self, size, stream, ident=None):
        with torch.cuda.stream(self.streams[stream]):
            tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        block = Block(tensor, ident if ident is not None else self.rng.getrandbits(50), stream)
        self.count["allocs"] += 1
        self.account(size, rounded(size))
        return block

    def account(self, size, size_rounded):
        self.live += size
        self.live_rounded += size_rounded
        self.peak = max(self.peak, self.live_rounded)

    def drop(self, block):
        self.account(-block.bytes, -rounded(block.bytes))
        block.tensor = None

    def fill(self, block):
        with torch.cuda.stream(self.streams[block.stream]):
            if block.words:
                torch.add(self.ramp[:block.words], block.ident, out=block.body())
            if block.bytes % 8:
                block.tail().fill_(block.ident & 255)
        self.bytes_written += block.bytes

    def verify(self, block, stream=None):
        stream = block.stream if stream is None else stream
        with torch.cuda.stream(self.streams[stream]):
            bad = self.bad[stream]
            if block.words:
                difference = self.scratch[stream][:block.words]
                torch.sub(block.body(), self.ramp[:block.words], out=difference)
                low, high = torch.aminmax(difference)
                bad.bitwise_or_(low.bitwise_xor_(block.ident))
                bad.bitwise_or_(high.bitwise_xor_(block.ident))
            if block.bytes % 8:
                bad.bitwise_or_((block.tail() != (block.ident & 255)).any())

    def take(self):
        """A random block, out of the list."""
        at = self.rng.randrange(len(self.blocks))
        self.blocks[at], self.blocks[-1] = self.blocks[-1], self.blocks[at]
        return self.blocks.pop()

    def other(self, stream):
        return self.rng.choice([at for at in range(len(self.streams)) if at != stream])

    def follow(self, stream, after):
        self.streams[stream].wait_event(self.streams[after].record_event())

    def doze(self, stream):
        """Keeps a stream busy for up to about a millisecond, so that what is freed on it stays in use for a while."""
        with torch.cuda.stream(self.streams[stream]):
            torch.cuda._sleep(int(10 ** self.rng.uniform(3, 6.2)))

    # Steps

    def size(self):
        return min(BIGGEST, max(1, int(2 ** self.rng.uniform(self.low, self.high))))

    def step_allocate(self):
        try:
            block = self.allocate(self.size(), self.rng.randrange(len(self.streams)))
        except torch.OutOfMemoryError:
            # Near a full device that is no fault by itself; how often it came is reported.
            self.count["oom_else"] += 1
            for _ in range(1 + len(self.blocks) // 10):
                if self.blocks:
                    self.step_free()
            return
        self.fill(block)
        self.blocks.append(block)

    def step_free(self):
        block = self.take()
        self.verify(block)
        if self.rng.random() < 0.3:
            with torch.cuda.stream(self.streams[self.other(block.stream)]):
                self.drop(block)
        else:
            self.drop(block)

    def step_lend(self):
        """Another stream reads the block late, and the block is freed at once: record_stream must keep it."""
        block = self.take()
        stream = self.other(block.stream)
        self.follow(stream, block.stream)
        if self.rng.random() < 0.5:
            self.doze(stream)
        self.verify(block, stream)
        block.tensor.record_stream(self.streams[stream])
        self.drop(block)
        self.count["lends"] += 1

    def step_clone(self):
        """A copy made on another stream takes the block's place."""
        block = self.take()
        stream = self.other(block.stream)
        try:
            copy = self.allocate(block.bytes, stream, block.ident)
        except torch.OutOfMemoryError:
            self.count["oom_else"] += 1
            self.verify(block)
            self.drop(block)
            return
        self.follow(stream, block.stream)
        with torch.cuda.stream(self.streams[stream]):
            copy.tensor.copy_(block.tensor, non_blocking=True)
        block.tensor.record_stream(self.streams[stream])
        self.drop(block)
        self.blocks.append(copy)
        self.count["clones"] += 1

    def step_doze(self):
        self.doze(self.rng.randrange(len(self.streams)))

    def step_pinned(self):
        """To the device from pinned memory, which is dropped at once, and later back to pinned memory."""
        words = self.rng.randint(1, self.host_ramp.numel())
        block = self.allocate(words * 8, self.rng.randrange(len(self.streams)))
        host = torch.empty(words, dtype=torch.int64, pin_memory=True)
        torch.add(self.host_ramp[:words], block.ident, out=host)
        back = torch.empty(words, dtype=torch.int64, pin_memory=True)
        with torch.cuda.stream(self.streams[block.stream]):
            block.body().copy_(host, non_blocking=True)
            back.copy_(block.body(), non_blocking=True)
        self.readbacks.append((self.streams[block.stream].record_event(), back, block.ident))
        self.blocks.append(block)
        self.count["pinned"] += 1
        if len(self.readbacks) > 8:
            self.read_back()

    def read_back(self):
        event, back, ident = self.readbacks.pop(0)
        event.synchronize()
        if not torch.equal(back, self.host_ramp[:back.numel()] + ident):
            self.wrong.append("a copy to pinned memory has wrong contents")

    def step_capture(self):
        stream = self.streams[self.rng.randrange(1, len(self.streams))]
        words = self.rng.randint(1, 2 * MIB)
        with torch.cuda.stream(stream):
            given = torch.zeros(words, dtype=torch.int64, device="cuda")
            calculation(given)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            result = calculation(given)
        made = Graph(graph, given, result, stream)
        self.account(made.bytes, rounded(made.bytes))
        self.graphs.append(made)
        self.count["captures"] += 1
        if len(self.graphs) > 6:
            self.forget_graph(self.graphs.pop(self.rng.randrange(len(self.graphs))))

    def forget_graph(self, graph):
        torch.cuda.synchronize()
        self.account(-graph.bytes, -rounded(graph.bytes))
        graph.graph = graph.given = graph.result = None

    def step_replay(self):
        """On any stream: two graphs that share memory may follow each other on two streams without a wait of ours."""
        if not self.graphs:
            return
        graph = self.rng.choice(self.graphs)
        at = self.rng.randrange(len(self.streams))
        stream = self.streams[at]
        stream.wait_event(graph.last)
        with torch.cuda.stream(stream):
            torch.add(self.ramp[:graph.given.numel()], self.rng.getrandbits(20), out=graph.given)
            graph.graph.replay()
            self.bad_graph[at].bitwise_or_((calculation(graph.given) != graph.result).any())
        graph.last = stream.record_event()
        self.count["replays"] += 1

    def step_empty_cache(self):
        torch.cuda.empty_cache()
        self.count["emptied"] += 1

    # Checks

    def quiesce(self):
        """Everything is done: look at what the checks found, and at the statistics."""
        while self.readbacks:
            self.read_back()
        torch.cuda.synchronize()
        self.count["quiet"] += 1
        for what, flags in (("wrong contents", self.bad), ("a graph's result is wrong", self.bad_graph)):
            for at, bad in enumerate(flags):
                if bad.item():
                    self.wrong.append(f"{what} on stream {at}, after {self.count['ops']} steps")
                    bad.zero_()
        self.balance()

    def balance(self):
        used = torch.cuda.memory_allocated() - self.base
        # PyTorch's own allocator counts whole blocks, which may be up to 1 MiB larger than the request. What a graph made for
        # itself may count or not.
        more = (MIB * (len(self.blocks) + 8 * len(self.graphs) + 8) if self.native else MIB)
        more += sum(6 * rounded(graph.bytes) for graph in self.graphs)
        self.off_low = max(self.off_low, self.live - used)
        self.off_high = max(self.off_high, used - self.live_rounded)
        if not self.live <= used <= self.live_rounded + more:
            self.wrong.append(f"memory_allocated: {used} with {self.live} requested ({self.live_rounded} rounded)")
        peak = torch.cuda.max_memory_allocated() - self.base
        # Temporaries of checks and of captures come on top of what we count; in PyTorch's own allocator the slack of each block.
        if not self.peak <= peak <= self.peak + more + GIB * (8 if self.native else 1):
            self.wrong.append(f"max_memory_allocated: {peak}, ours {self.peak}")
        reserved = torch.cuda.memory_reserved()
        if not used + self.base <= reserved <= torch.cuda.max_memory_reserved():
            self.wrong.append(f"memory_reserved: {reserved}, allocated {used + self.base}, "
                              f"highest {torch.cuda.max_memory_reserved()}")
        if self.args.alone:
            free, total = torch.cuda.mem_get_info()
            self.foreign.append(total - free - reserved)
        torch.cuda.reset_peak_memory_stats()
        self.peak = self.live_rounded

    def too_much(self):
        """A request that no device can serve fails, and nothing else does."""
        total = torch.cuda.mem_get_info()[1]
        try:
            torch.empty(total + GIB, dtype=torch.uint8, device="cuda")
            self.wrong.append("a request larger than the device was served")
        except torch.OutOfMemoryError:
            self.count["oom_wanted"] += 1

    def fill_device(self):
        """Blocks until the device is full, with large, middling and small ones; then all are verified."""
        full = []
        for size in (GIB, 64 * MIB, 2 * MIB):
            try:
                while True:
                    block = self.allocate(size, self.rng.randrange(len(self.streams)))
                    self.fill(block)
                    full.append(block)
            except torch.OutOfMemoryError:
                self.count["oom_wanted"] += 1
        free = torch.cuda.mem_get_info()[0]
        self.left_mib.append((free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()) // MIB)
        # The checks themselves need a little.
        for block in full[-8:]:
            self.drop(block)
        del full[-8:]
        self.rng.shuffle(full)
        for block in full:
            self.verify(block)
            self.drop(block)

    def warm_up(self):
        """Loads every kernel, so that what the driver itself takes of the device does not grow later."""
        for step in (self.step_allocate, self.step_allocate, self.step_lend, self.step_clone, self.step_doze, self.step_pinned,
                     self.step_capture, self.step_replay, self.step_empty_cache):
            step()
        for size in (1, 7, 9, 4096, BIGGEST):
            block = self.allocate(size, 1)
            self.fill(block)
            self.verify(block)
            self.drop(block)
        while self.blocks:
            self.step_free()
        self.forget_graph(self.graphs.pop())
        while self.readbacks:
            self.read_back()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.base = torch.cuda.memory_allocated() - self.live
        torch.cuda.reset_peak_memory_stats()
        self.peak = self.live_rounded

    def run(self):
        steps = [(self.step_free, 24), (self.step_lend, 8), (self.step_clone, 4), (self.step_pinned, 1), (self.step_doze, 2)]
        choices, weights = [step for step, _ in steps], [weight for _, weight in steps]
        room = torch.cuda.mem_get_info()[0]
        cap = self.args.cap or room
        phases = [(GIB, 0, 26), (cap // 5, 0, 30), (int(cap * 0.95), 18, 30), (64 * MIB, 0, 20), (cap // 2, 8, 28)]
        end = time.monotonic() + self.args.seconds
        phase = 0
        while time.monotonic() < end and not self.wrong:
            self.cap, self.low, self.high = phases[phase % len(phases)]
            phase_end = min(end, time.monotonic() + self.args.seconds / (2 * len(phases)))
            while self.blocks and self.live > self.cap:
                self.step_free()
            while time.monotonic() < phase_end and not self.wrong:
                for _ in range(500):
                    self.count["ops"] += 1
                    try:
                        if not self.blocks or (self.live < self.cap and self.rng.random() < 0.55):
                            self.step_allocate()
                        else:
                            self.rng.choices(choices, weights)[0]()
                        if self.rng.random() < 0.01:
                            self.step_replay()
                    except torch.OutOfMemoryError:
                        self.count["oom_else"] += 1
                if self.args.graphs and self.live < room // 2 and self.rng.random() < 0.2:
                    self.step_capture()
                if self.rng.random() < 0.05:
                    self.step_empty_cache()
                self.quiesce()
            self.too_much()
            if self.args.fill and phase % len(phases) == 1:
                while self.live > self.cap // 4 and self.blocks:
                    self.step_free()
                self.fill_device()
                self.quiesce()
            phase += 1
        while self.blocks:
            self.step_free()
        while self.graphs:
            self.forget_graph(self.graphs.pop())
        gc.collect()
        self.quiesce()
        torch.cuda.empty_cache()
        left = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return left


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--cap", type=int, default=0, help="most live bytes (0: by what is free)")
    parser.add_argument("--no-graphs", dest="graphs", action="store_false", help="capture nothing but at the start")
    parser.add_argument("--fill", action="store_true", help="fill the device until a request fails, too")
    parser.add_argument("--alone", action="store_true", help="no other program uses the device: check what it says is free")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    torch.cuda.init()
    begin = time.monotonic()
    work = Work(args)
    work.warm_up()
    left = work.run()
    peak_reserved = torch.cuda.max_memory_reserved()
    foreign = work.foreign or [0]
    proof.report(seed=args.seed, backend=torch.cuda.get_allocator_backend(), seconds=round(time.monotonic() - begin, 1),
                 wrong=work.wrong[:5], written_gib=round(work.bytes_written / GIB), cached_after_mib=left // MIB,
                 last_peak_reserved_mib=peak_reserved // MIB,
                 foreign_mib=[min(foreign) // MIB, max(foreign) // MIB], left_when_full_mib=work.left_mib,
                 books_off=[work.off_low, work.off_high], retries=torch.cuda.memory_stats().get("num_alloc_retries", 0),
                 **work.count)
    return 1 if work.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
