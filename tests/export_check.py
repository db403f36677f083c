# SPDX-License-Identifier: MIT
"""Judges exported files by what their readers need; the standard library alone.

    export_check.py snapshot FILE [ORIGINAL]   a PyTorch memory snapshot, and whether it says what the original said
    export_check.py perfetto FILE              JSON of Chrome's trace format

Where PyTorch is installed, its own torch.cuda._memory_viz reads snapshots as well. Exit status: 0, or 1 with what is
wrong.
"""
import bisect
import importlib.util
import json
import os
import pickle
import pickletools
import sys

# What MemoryViz.js understands, beyond which it stops.
OPCODES = """PROTO FRAME MEMOIZE MARK EMPTY_DICT EMPTY_LIST SETITEMS APPENDS SHORT_BINUNICODE BINUNICODE BININT BININT1
BININT2 LONG1 BINFLOAT TUPLE2 NEWTRUE NEWFALSE BINGET LONG_BINGET STOP APPEND SETITEM NONE""".split()
GROUP_MAX = 1000  # items that it passes as arguments of one call
OPCODES_UP_TO = 150000  # bytes: of a large file the beginning, as pickletools takes its time
SEGMENT_KEYS = """device address total_size allocated_size active_size requested_size stream segment_type
segment_pool_id is_expandable frames blocks""".split()
EVENT_KEYS = set("action size stream time_us".split())
# What a trace does not keep of a snapshot.
LOST_SETTINGS = """pinned_num_register_threads release_lock_on_cudamalloc pinned_use_cuda_host_register
graph_capture_record_stream_reuse""".split()
LOST_OF_EVENTS = ["compile_context", "user_metadata"]
KEPT_OF_PROBES = "cap_mib total retries ooms device_left_mib".split()


def demand(holds, what, *about):
    """`about` fills the {} of `what`, which is done only where it is needed: there are millions of demands."""
    if not holds:
        sys.exit(what.format(*about))


def check_opcodes(data):
    marks, items = [], 0
    for op, arg, at in pickletools.genops(data):
        if at > OPCODES_UP_TO:
            return
        demand(op.name in OPCODES, "offset {}: opcode {}", at, op.name)
        if op.name == "PROTO":
            demand(2 <= arg <= 4, "protocol {}", arg)
        if op.name == "LONG1":
            demand(-(2**63) <= arg < 2**63, "offset {}: an integer of more than 8 bytes", at)
        # how many values lie on the stack since the last mark
        if op.name == "MARK":
            marks.append(items)
            items = 0
        elif op.name in ("SETITEMS", "APPENDS"):
            most = 2 * GROUP_MAX if op.name == "SETITEMS" else GROUP_MAX
            demand(items <= most, "offset {}: {} in a group", at, items)
            items = marks.pop()
        else:
            items += len(op.stack_after) - len(op.stack_before)


def check_segment(s):
    demand(all(k in s for k in SEGMENT_KEYS), "segment without a key: {}", sorted(s))
    at = s["address"]
    for b in s["blocks"]:
        demand(b["address"] == at and b["size"] > 0, "block {} does not begin at {}", b, at)
        demand(isinstance(b["frames"], list), "a block without frames")
        at += b["size"]
    demand(at == s["address"] + s["total_size"], "blocks do not fill {}", s["address"])
    active = [b for b in s["blocks"] if b["state"] in ("active_allocated", "active_pending_free")]
    for b in active:
        demand(0 < b["requested_size"] <= b["size"], "nothing or too much was requested of {}", b)
    demand(s["active_size"] == sum(b["size"] for b in active), "active_size")
    demand(s["requested_size"] == sum(b["requested_size"] for b in active), "requested_size")
    demand(s["allocated_size"] == sum(b["size"] for b in active if b["state"] == "active_allocated"), "allocated_size")


class Rewind:
    """The state that memory_viz shows, taken back event by event. Like it, but it asks instead of failing later."""

    def __init__(self, segments):
        self.starts = sorted(s["address"] for s in segments)
        self.segments = {s["address"]: [s["address"] + s["total_size"], s["stream"]] for s in segments}
        self.pending = {}
        for s in segments:
            for b in s["blocks"]:
                if b["state"] != "inactive":
                    self.pending[b["address"]] = b["state"] == "active_pending_free"

    def containing(self, addr):
        i = bisect.bisect_right(self.starts, addr) - 1
        return self.starts[i] if i >= 0 and addr < self.segments[self.starts[i]][0] else None

    def add(self, addr, end, stream, merge):
        demand(self.containing(addr) is None, "segment {} is there already", addr)
        bisect.insort(self.starts, addr)
        self.segments[addr] = [end, stream]
        if not merge:
            return
        i = self.starts.index(addr)
        for left in (i, i - 1):
            if left < 0 or left + 1 >= len(self.starts):
                continue
            a, b = self.starts[left], self.starts[left + 1]
            if self.segments[a][0] == b and self.segments[a][1] == self.segments[b][1]:
                self.segments[a][0] = self.segments.pop(b)[0]
                self.starts.remove(b)

    def remove(self, addr, end, partly):
        start = self.containing(addr)
        demand(start is not None and end <= self.segments[start][0], "no segment holds {} to {}", addr, end)
        stop, stream = self.segments.pop(start)
        self.starts.remove(start)
        demand(partly or (start == addr and stop == end), "segment {} has another size", addr)
        for a, b in ((start, addr), (end, stop)):
            if a < b:
                bisect.insort(self.starts, a)
                self.segments[a] = [b, stream]

    def undo(self, e):
        action, addr = e["action"], e.get("addr", 0)
        end = addr + e["size"]
        if action == "free_completed":
            demand(self.containing(addr) is not None, "block {} lies in no segment", addr)
            self.pending[addr] = True
        elif action == "free_requested":
            demand(self.pending.get(addr), "block {}: a request to free it that is neither pending nor completed", addr)
            self.pending[addr] = False
        elif action == "alloc":
            self.pending.pop(addr, None)
        elif action in ("segment_free", "segment_unmap"):
            self.add(addr, end, e["stream"], action == "segment_unmap")
        elif action in ("segment_alloc", "segment_map"):
            self.remove(addr, end, action == "segment_map")


def check_traces(d):
    for device, trace in enumerate(d["device_traces"]):
        segments = [s for s in d["segments"] if s["device"] == device]
        state = Rewind(segments)
        for e in reversed(trace):
            demand(EVENT_KEYS <= e.keys(), "event without a key: {}", e)
            demand(("device_free" if e["action"] == "oom" else "addr") in e, "event without an address: {}", e)
            state.undo(e)


def reduced(d):
    """What a trace keeps."""
    for s in d["segments"]:
        s.setdefault("frames", [])
        for b in s["blocks"]:
            b.setdefault("frames", [])
    for trace in d["device_traces"]:
        for e in trace:
            for k in LOST_OF_EVENTS:
                e.pop(k, None)
    for k in LOST_SETTINGS:
        d["allocator_settings"].pop(k, None)
    if "probe" in d:
        d["probe"] = {k: d["probe"].get(k, 0) for k in KEPT_OF_PROBES}
    return d


def ask_torch(d):
    spec = importlib.util.find_spec("torch")
    if not spec or not spec.origin:
        return
    path = os.path.join(os.path.dirname(spec.origin), "cuda", "_memory_viz.py")
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    viz = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(viz)
    viz.segsum(d)
    viz.trace(d)
    viz.memory(d, format_flamegraph=lambda lines: lines)
    viz.segments(d, format_flamegraph=lambda lines: lines)


def check_snapshot(path, original=None):
    with open(path, "rb") as f:
        data = f.read()
    check_opcodes(data)
    d = pickle.loads(data)
    demand(all(k in d for k in ("segments", "device_traces", "external_annotations")), "keys {}", sorted(d))
    for s in d["segments"]:
        check_segment(s)
    check_traces(d)
    ask_torch(d)
    if original:
        with open(original, "rb") as f:
            before = reduced(pickle.load(f))
        after = reduced(d)
        for k in sorted(set(before) | set(after)):
            demand(before.get(k) == after.get(k), "{}: '{}' differs", original, k)


def check_perfetto(path):
    with open(path, encoding="utf-8") as f:
        d = json.load(f)
    last, open_slices, blocks, nested = {}, {}, 0, {}
    for e in d["traceEvents"]:
        kind, name = e["ph"], e["name"]
        demand(kind in "MCbeiX" and e["pid"] > 0, "event {}", e)
        if kind == "M":
            continue
        track = (e["pid"], kind == "C", name if kind == "C" else e["cat"])
        demand(e["ts"] >= last.get(track, 0), "time goes back: {}", e)
        last[track] = e["ts"]
        if kind == "X":
            inside = nested.setdefault((e["pid"], e["tid"]), [])
            while inside and inside[-1] <= e["ts"]:
                inside.pop()
            end = e["ts"] + e["dur"]
            demand(e["dur"] >= 0 and (not inside or end <= inside[-1]), "begins in a slice and ends behind it: {}", e)
            inside.append(end)
        elif kind == "C":
            demand(e["args"]["bytes"] >= 0, "counter {}", e)
        elif kind in "be":
            key = (e["pid"], e["cat"], e["id2"]["local"])
            if kind == "b":
                demand(key not in open_slices, "begins twice: {}", e)
                open_slices[key] = name
                blocks += e["cat"] == "block"
            else:
                demand(open_slices.pop(key, None) == name, "ends without a beginning: {}", e)
    demand(not open_slices, "without an end: {}", list(open_slices)[:3])
    demand(blocks == d["otherData"]["blocks"], "otherData does not count the blocks")


def main():
    kinds = {"snapshot": check_snapshot, "perfetto": check_perfetto}
    if len(sys.argv) < 3 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    kinds[sys.argv[1]](*sys.argv[2:])


main()
