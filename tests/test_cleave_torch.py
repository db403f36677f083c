# SPDX-License-Identifier: MIT
"""scripts/cleave_torch.py without a GPU and without PyTorch: plans over a simulated device with memory, the capsules that DLPack's
consumers get, and, on the test double of libcuda.so.1, regions, stand-ins and streams under a module that answers as
PyTorch does. Usage: test_cleave_torch.py SCRIPT; CLEAVE_LIBRARY, CLEAVE_PRELOAD_LIBRARY and CLEAVE_LIBCUDA_FOLDER say where the
libraries are, CLEAVE_ABI_SIZES the program that knows C's structures."""
import contextlib
import ctypes
import errno
import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest

SCRIPT = sys.argv.pop(1)
spec = importlib.util.spec_from_file_location("cleave_torch", SCRIPT)
cleave_torch = importlib.util.module_from_spec(spec)
sys.modules["cleave_torch"] = cleave_torch
spec.loader.exec_module(cleave_torch)

EXPERTS, LAYERS = 4, 3
BUFFERS = [
    {"name": "w13_weight", "shape": [EXPERTS, 96, 1024], "dtype": "uint8", "bytes": EXPERTS * 96 * 1024},
    {"name": "w13_weight_scale", "shape": [EXPERTS, 96, 128], "dtype": "float8_e4m3fn", "bytes": EXPERTS * 96 * 128,
     "zeroed": True},
    {"name": "w2_weight", "shape": [EXPERTS, 64, 96], "dtype": "bfloat16", "bytes": EXPERTS * 64 * 96 * 2, "same": True},
    {"name": "w2_weight_scale", "shape": [EXPERTS, 97, 3], "strides": [300, 1, 100], "dtype": "int32", "bytes": EXPERTS * 1200},
    {"name": "input_scale", "shape": [], "dtype": "float32", "bytes": 4},
]
PLAN = {"version": 1, "model": "Sample", "backend": "nvfp4-cutlass", "strategy": "ping-pong", "rank": 2, "moe_layers": 6,
        "layers_local": LAYERS, "experts_local": EXPERTS, "buffers": BUFFERS, "reservations": []}
LAYER_BYTES = sum(b["bytes"] for b in BUFFERS)


class Scratch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, document=None):
        path = os.path.join(self.folder.name, "plan.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document or PLAN, file)
        return path

    def bound(self, memory="sim-backed:64MiB", **options):
        return cleave_torch.Plan(self.write()).bind(memory, **options)


def live(heap):
    gc.collect()
    return heap.tell().stats(0)["live_blocks"]


class Plans(Scratch):
    def test_what_a_plan_says(self):
        plan = cleave_torch.Plan(self.write())
        self.assertEqual((plan.model, plan.backend, plan.strategy, plan.rank), ("Sample", "nvfp4-cutlass", "ping-pong", 2))
        self.assertEqual((plan.layers, plan.moe_layers, plan.experts, plan.layer_bytes), (LAYERS, 6, EXPERTS, LAYER_BYTES))
        self.assertEqual(list(plan.buffers), [b["name"] for b in BUFFERS])
        for described in BUFFERS:
            buffer = plan.buffers[described["name"]]
            self.assertEqual((buffer.shape, buffer.dtype.name, buffer.bytes, buffer.zeroed, buffer.same),
                             (tuple(described["shape"]), described["dtype"], described["bytes"], described.get("zeroed", False),
                              described.get("same", False)))
        self.assertEqual(plan.buffers["w2_weight_scale"].strides, (300, 1, 100))
        self.assertEqual(plan.buffers["w13_weight"].strides, (96 * 1024, 1024, 1))
        self.assertEqual(plan.buffers["input_scale"].experts, 1)

    def test_a_wrong_file(self):
        path = self.write(PLAN | {"experts_local": "4"})
        with self.assertRaisesRegex(cleave_torch.PlanError, f"{path}: experts_local is a text: a whole number from 1 to"):
            cleave_torch.Plan(path)
        with self.assertRaisesRegex(cleave_torch.PlanError, "/nonexistent: cannot be opened"):
            cleave_torch.Plan("/nonexistent")
        self.assertEqual(cleave_torch.Plan(self.write(), rank=2).rank, 2)
        with self.assertRaisesRegex(cleave_torch.PlanError, "rank is 2: a plan of rank 3 was expected"):
            cleave_torch.Plan(self.write(), rank=3)

    def test_filled_expert_by_expert(self):
        plan = self.bound()
        self.assertEqual(live(plan.heap), 0)
        for number in range(LAYERS):
            layer = plan.layer(number)
            for name, buffer in plan.buffers.items():
                for e in range(buffer.experts):
                    array = layer.expert(name, e)
                    self.assertEqual(array.shape, buffer.shape[1:] if buffer.experts > 1 else buffer.shape)
                    self.assertEqual(array.address, layer[name].address + e * buffer.expert_bytes)
                    ctypes.memset(plan.heap._lib.driver_host_address(plan.heap._driver, array.address, buffer.expert_bytes),
                                  1 + number * 16 + e, buffer.expert_bytes)
            layer.check()
            self.assertEqual(layer.missing(), {})
        for number in range(LAYERS):
            for name in plan.buffers:
                buffer = plan.layer(number)[name]
                data = ctypes.string_at(plan.heap._lib.driver_host_address(plan.heap._driver, buffer.address, buffer.bytes),
                                        buffer.bytes)
                expected = b"".join(bytes([1 + number * 16 + e]) * buffer.expert_bytes for e in range(buffer.experts))
                self.assertEqual(data, expected, name)
        self.assertEqual(live(plan.heap), LAYERS * len(BUFFERS))

    def test_the_books(self):
        plan = self.bound()
        layer = plan.layer(1)
        with self.assertRaisesRegex(cleave_torch.FillError, "layer 1 is not filled: w13_weight lacks 4 of 4"):
            layer.check()
        layer.expert("w2_weight", 1)
        with self.assertRaisesRegex(cleave_torch.FillError, "layer 1, w2_weight, expert 1 is filled already") as raised:
            layer.expert("w2_weight", 1)
        self.assertEqual(raised.exception.errno, errno.EEXIST)
        self.assertEqual(layer.missing()["w2_weight"], [0, 2, 3])
        layer.unfill("w2_weight", 1)
        layer.expert("w2_weight", 1)
        for name, e in (("w2_weight", EXPERTS), ("w2_weight", -1), ("w2", 0)):
            with self.assertRaisesRegex(cleave_torch.PlanError, f"layer 1, {name}: the plan has no such"):
                layer.expert(name, e)
        for number in (-1, 2**32, 2**32 + 1): # ctypes would cut it off
            with self.assertRaisesRegex(cleave_torch.PlanError, f"the plan has no such expert, {number}"):
                plan.layer(1).expert("w13_weight", number)
            with self.assertRaisesRegex(cleave_torch.PlanError, f"there is no rank {number}"):
                cleave_torch.Plan(plan.path, rank=number)
        with self.assertRaisesRegex(cleave_torch.PlanError, "layers 0 to 2, and no 3"):
            plan.layer(3)
        with self.assertRaises(cleave_torch.PlanError):
            layer["w2"]

    def test_binding(self):
        plan = cleave_torch.Plan(self.write())
        with self.assertRaisesRegex(cleave_torch.CleaveError, "not bound to memory yet"):
            plan.layer(0)
        with self.assertRaisesRegex(ValueError, "\"elsewhere\" is no memory"):
            plan.bind("elsewhere")
        with self.assertRaisesRegex(cleave_torch.PlanError, "4 layers ahead: the plan has 3"):
            plan.bind("sim:64MiB", ahead=4)
        heap = cleave_torch.Heap("sim:2MiB")
        kept = heap.empty(3 << 19)
        with self.assertRaisesRegex(cleave_torch.OutOfMemory, "2 layers ahead: .*MiB"):
            plan.bind(heap, ahead=2)
        self.assertEqual(live(heap), 1)
        self.assertIsNone(plan.heap)
        del kept
        heap = cleave_torch.Heap("sim:64MiB")
        plan.bind(heap, ahead=cleave_torch.ALL)
        self.assertEqual(live(heap), LAYERS * len(BUFFERS))
        with self.assertRaisesRegex(cleave_torch.CleaveError, "bound already"):
            plan.bind(heap)
        del plan
        self.assertEqual(live(heap), 0)

    def test_memory_goes_with_its_last_user(self):
        plan = self.bound()
        heap = plan.heap
        layer = plan.layer(0)
        array = layer.expert("w13_weight", 0)
        self.assertFalse(layer.release())
        with self.assertRaisesRegex(cleave_torch.CleaveError, "layer 0 was released"):
            layer["w13_weight"]
        self.assertEqual(live(heap), len(BUFFERS))
        # asked for again meanwhile, it is what it was
        self.assertEqual(plan.layer(0).missing()["w13_weight"], [1, 2, 3])
        self.assertEqual(plan.layer(0)["w13_weight"].address, array.address)
        self.assertFalse(plan.layer(0).release())
        del array
        self.assertEqual(live(heap), 0)
        self.assertEqual(plan.layer(0).missing()["w13_weight"], [0, 1, 2, 3])
        kept = plan.layer(2)["w2_weight"]
        del plan, layer
        self.assertEqual(live(heap), len(BUFFERS))
        del kept
        self.assertEqual(live(heap), 0)

    def test_loaders_side_by_side(self):
        plan, filled = self.bound("sim:64MiB"), []

        def load():
            for number in range(LAYERS):
                for e in range(EXPERTS):
                    with contextlib.suppress(cleave_torch.FillError):
                        plan.layer(number).expert("w13_weight", e)
                        filled.append((number, e))
        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(filled), [(number, e) for number in range(LAYERS) for e in range(EXPERTS)])


class Consumer:
    """Takes a capsule as DLPack's consumers do."""

    def __init__(self, capsule, versioned=False):
        api, name = ctypes.pythonapi, b"dltensor_versioned" if versioned else b"dltensor"
        api.PyCapsule_SetName.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        self.address = api.PyCapsule_GetPointer(id(capsule), name)
        self.name = b"used_" + name
        api.PyCapsule_SetName(id(capsule), self.name)
        kind = cleave_torch._Versioned if versioned else cleave_torch._Managed
        self.managed = kind.from_address(self.address)

    def done(self):
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.managed.deleter)(self.address)


class Arrays(Scratch):
    def test_dlpack(self):
        plan = self.bound()
        codes = {"uint8": (1, 8), "float8_e4m3fn": (10, 8), "bfloat16": (4, 16), "int32": (0, 32), "float32": (2, 32)}
        # offsets as the header of DLPack has them on 64 bits
        self.assertEqual((cleave_torch._Managed.shape.offset, cleave_torch._Managed.context.offset), (24, 48))
        self.assertEqual((cleave_torch._Versioned.flags.offset, cleave_torch._Versioned.data.offset), (24, 32))
        for name, versioned in [(name, versioned) for name in plan.buffers for versioned in (False, True)]:
            buffer, described = plan.layer(0)[name], plan.buffers[name]
            taken = Consumer(buffer.__dlpack__(stream=None, max_version=(1, 3) if versioned else (0, 8)), versioned)
            tensor = taken.managed
            if versioned:
                self.assertEqual((tensor.major, tensor.minor, tensor.flags), (1, 1, 0))
            self.assertEqual((tensor.device_type, tensor.device_id), (1, 0))
            self.assertEqual(buffer.__dlpack_device__(), (1, 0))
            self.assertEqual((tensor.code, tensor.bits, tensor.lanes), (*codes[described.dtype.name], 1))
            self.assertEqual(tuple(tensor.shape[:tensor.ndim]), described.shape)
            self.assertEqual(tuple(tensor.strides[:tensor.ndim]), described.strides)
            self.assertEqual((tensor.data, tensor.byte_offset), (buffer._data(), 0))
            taken.done()
        self.assertEqual(cleave_torch._exports, {})
        with self.assertRaises(BufferError):
            buffer.__dlpack__(copy=True)
        with self.assertRaises(BufferError):
            buffer.__dlpack__(dl_device=(2, 0))

    def test_a_consumer_keeps_the_memory(self):
        heap = cleave_torch.Heap("sim-backed:64MiB")
        array = heap.empty((2, 3), "float32")
        taken = Consumer(array.__dlpack__())
        del array
        self.assertEqual(live(heap), 1)
        ctypes.memset(taken.managed.data, 7, 24)
        taken.done()
        self.assertEqual(live(heap), 0)

    def test_a_capsule_that_nobody_takes(self):
        heap = cleave_torch.Heap("sim-backed:64MiB")
        for version in (None, (1, 0)):
            capsule = heap.empty(10).__dlpack__(max_version=version)
            self.assertEqual((live(heap), len(cleave_torch._exports)), (1, 1))
            del capsule
            self.assertEqual((live(heap), len(cleave_torch._exports)), (0, 0))

    def test_array_interface(self):
        heap = cleave_torch.Heap("sim-backed:64MiB")
        array = heap.empty((2, 3), "int32")
        interface = array.__array_interface__
        self.assertEqual((interface["shape"], interface["typestr"], interface["strides"], interface["version"]),
                         ((2, 3), "<i4", None, 3))
        (ctypes.c_int32 * 6).from_address(interface["data"][0])[:] = range(6)
        where = heap._lib.driver_host_address(heap._driver, array.address, 24)
        self.assertEqual(ctypes.string_at(where, 8), bytes([0, 0, 0, 0, 1, 0, 0, 0]))
        self.assertFalse(hasattr(array, "__cuda_array_interface__"))
        self.assertFalse(hasattr(heap.empty(3, "bfloat16"), "__array_interface__"))
        self.assertEqual(heap.empty(3, "bfloat16").view("uint8").shape, (6,))
        self.assertEqual(heap.empty((3, 5), "float8_e8m0fnu").view("uint8").__array_interface__["typestr"], "|u1")
        packed = self.bound().layer(0)["w2_weight_scale"]
        self.assertEqual(packed.__array_interface__["strides"], (1200, 4, 400))
        with self.assertRaises(ValueError):
            packed.view("uint8")
        with self.assertRaises(ValueError):
            heap.empty((3, 0))
        with self.assertRaisesRegex(ValueError, "fp4: a dtype was expected that is one of uint8"):
            heap.empty(3, "fp4")

    def test_out_of_memory_is_explained(self):
        heap = cleave_torch.Heap("sim:4MiB")
        kept = heap.empty(3 << 20)
        with self.assertRaisesRegex(cleave_torch.OutOfMemory, "3145728 bytes on device 0: .*3.0 MiB") as raised:
            heap.empty(3 << 20)
        self.assertIsInstance(raised.exception, MemoryError)
        del kept
        heap.empty(3 << 20)
        gc.collect()
        self.assertGreaterEqual(heap.tell().stats(0)["held_bytes"], 3 << 20)
        heap.trim()
        self.assertEqual(heap.tell().stats(0)["held_bytes"], 0)

    def test_settings(self):
        with self.assertRaisesRegex(cleave_torch.CleaveError, "cannot be opened: .*no_such_setting"):
            cleave_torch.Heap("sim:4MiB", settings="no_such_setting:1")
        with self.assertRaisesRegex(ValueError, "CLEAVE_CONF"):
            cleave_torch.Heap("cuda", settings="limit:1MiB")


class Snapshots(Scratch):
    def check_snapshot(self, found, device=0):
        self.assertEqual(sorted(found), ["allocator_settings", "device_traces", "external_annotations", "segments"])
        self.assertEqual(found["device_traces"], [[]] * (device + 1))
        last = 0
        for segment in found["segments"]:
            self.assertGreaterEqual(segment["address"], last)
            last = segment["address"] + segment["total_size"]
            self.assertEqual(sum(b["size"] for b in segment["blocks"]), segment["total_size"])
            at = segment["address"]
            for block in segment["blocks"]:
                self.assertEqual(block["address"], at)
                at += block["size"]
                self.assertIn(block["state"], ("active_allocated", "inactive"))
                self.assertLessEqual(block["requested_size"], block["size"])
            for name, of in (("allocated_size", "size"), ("active_size", "size"), ("requested_size", "requested_size")):
                self.assertEqual(segment[name], sum(b[of] for b in segment["blocks"] if b["state"] == "active_allocated"))

    def test_of_a_heap(self):
        heap = cleave_torch.Heap("sim:64MiB")
        kept = [heap.empty(size) for size in (100, 1000, 5 << 20, 3 << 20, 70000)]
        del kept[2]
        found = cleave_torch.snapshot({0: heap.tell().list(0)})
        self.check_snapshot(found)
        blocks = {b["address"]: b for segment in found["segments"] for b in segment["blocks"]}
        for array in kept:
            block = blocks[array.address]
            self.assertEqual((block["state"], block["requested_size"]), ("active_allocated", array.shape[0]))
        self.assertEqual(sum(b["state"] == "active_allocated" for b in blocks.values()), len(kept))
        self.assertEqual(sum(s["total_size"] for s in found["segments"]), heap.tell().stats(0)["held_bytes"])

    def test_of_nothing(self):
        self.assertEqual(cleave_torch.snapshot({})["segments"], [])
        self.check_snapshot(cleave_torch.snapshot({0: cleave_torch.Heap("sim:4MiB").tell().list(0)}))

    def test_statistics_have_every_key(self):
        stats = cleave_torch.Heap("sim:4MiB").tell().stats(0)
        found = cleave_torch.statistics(stats)
        for kind in ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
                     "inactive_split_bytes", "requested_bytes"):
            for pool in ("all", "large_pool", "small_pool"):
                for what in ("current", "peak", "allocated", "freed"):
                    self.assertIn(f"{kind}.{pool}.{what}", found)
        for name in ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free", "num_sync_all_streams",
                     "oversize_allocations.current", "oversize_segments.freed", "max_split_size"):
            self.assertIn(name, found)


class Layouts(unittest.TestCase):
    def test_structures_are_those_of_c(self):
        ours = {"cleave_stream": cleave_torch._Stream, "cleave_heap_stats": cleave_torch._Stats, "cleave_block": cleave_torch._Block,
                "cleave_failure": cleave_torch._Failure, "cleave_plan_info": cleave_torch._Info,
                "cleave_plan_buffer": cleave_torch._Buffer, "cleave_plan_memory": cleave_torch._Memory,
                "cleave_preload": cleave_torch._Preload}
        constants = {"CLEAVE_PLAN_ALL": cleave_torch.ALL, "CLEAVE_PRELOAD_VERSION": cleave_torch.PRELOAD_VERSION,
                     **{name: dtype.size * 8 for name, dtype in cleave_torch.DTYPES.items()}}
        told, sized = subprocess.run([os.environ["CLEAVE_ABI_SIZES"]], capture_output=True, text=True, check=True).stdout, set()
        for name, member, number in map(str.split, told.splitlines()):
            if name in ours and member != "-":
                self.assertEqual(getattr(ours[name], member).offset, int(number), f"{name}.{member}")
            else:
                found = constants[name] if name in constants else ctypes.sizeof(ours[name])
                self.assertEqual(found, int(number), name)
                sized.add(name)
        self.assertEqual(sized, {*ours, *constants})


class Command(unittest.TestCase):
    def test_self_check(self):
        done = subprocess.run([sys.executable, SCRIPT, "self-check"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("without GPU: works", done.stdout)
        self.assertIn(os.environ["CLEAVE_LIBRARY"], done.stdout)

    def test_help(self):
        done = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0)
        self.assertIn("self-check", done.stdout)

    def test_no_library(self):
        done = subprocess.run([sys.executable, SCRIPT, "self-check"], capture_output=True, text=True, check=False,
                              env=os.environ | {"CLEAVE_LIBRARY": "/nonexistent.so"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("libcleave.so is not found (CLEAVE_LIBRARY may have its path): /nonexistent.so", done.stdout)


# ---- on the test double of libcuda.so.1 ----

PROGRAM = """
import ctypes, sys, types
import importlib.util
spec = importlib.util.spec_from_file_location("cleave_torch", sys.argv[1])
cleave_torch = importlib.util.module_from_spec(spec)
sys.modules["cleave_torch"] = cleave_torch
spec.loader.exec_module(cleave_torch)
cuda = ctypes.CDLL("libcuda.so.1")

def do(function, *arguments):
    status = function(*arguments)
    assert status == 0, (function.__name__, status)

context = ctypes.c_void_p()
do(cuda.cuInit, 0)
do(cuda.cuDevicePrimaryCtxRetain, ctypes.byref(context), 0)
do(cuda.cuCtxSetCurrent, context)

def new_stream():
    stream = ctypes.c_void_p()
    do(cuda.cuStreamCreate, ctypes.byref(stream), 1)
    return stream.value

def write(array, data):
    do(cuda.cuMemcpyHtoD_v2, ctypes.c_uint64(array.address), data, ctypes.c_size_t(len(data)))

def read(address, size):
    data = ctypes.create_string_buffer(size)
    do(cuda.cuMemcpyDtoH_v2, data, ctypes.c_uint64(address), ctypes.c_size_t(size))
    return data.raw

# As much of PyTorch as is asked for.
torch = types.ModuleType("torch")
torch.cuda = types.ModuleType("torch.cuda")
torch.cuda.memory = types.ModuleType("torch.cuda.memory")
sys.modules.update({"torch": torch, "torch.cuda": torch.cuda, "torch.cuda.memory": torch.cuda.memory})
torch.__version__, current = "0.fake", types.SimpleNamespace(cuda_stream=0)
torch.cuda.is_initialized = lambda: True
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.current_device = lambda: 0
torch.cuda.current_stream = lambda device=None: current
torch.cuda.OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})

def refused(*_, **__):
    raise RuntimeError("cudaMallocAsync does not yet support this")

for name in ("_snapshot", "memory_snapshot", "_record_memory_history"):
    setattr(torch.cuda.memory, name, refused)
torch.cuda.memory.memory_stats = lambda device=None: {"allocated_bytes.all.current": 12345, "num_ooms": 0}
for name in ("memory_stats", "memory_snapshot"):
    setattr(torch.cuda, name, getattr(torch.cuda.memory, name))
torch.cuda.MemPool = refused
"""


class OnTheDouble(Scratch):
    def run_program(self, text, preload=False, **more):
        folder = os.environ["CLEAVE_LIBCUDA_FOLDER"]
        env = os.environ | {"LD_LIBRARY_PATH": folder, "FAKE_CUDA_MEMORY": "1GiB"} | more
        if preload:
            env["LD_PRELOAD"] = os.environ["CLEAVE_PRELOAD_LIBRARY"]
        done = subprocess.run([sys.executable, "-c", PROGRAM + textwrap.dedent(text), SCRIPT, self.write()], env=env,
                              capture_output=True, text=True, check=False, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done.stdout, done.stderr

    def test_a_plan_on_the_gpu(self):
        self.run_program("""
            plan = cleave_torch.Plan(sys.argv[2]).bind(ahead=1)
            assert plan.heap.name == "cuda" and plan.heap.tell().stats(0)["live_blocks"] == len(plan.buffers)
            current.cuda_stream = new_stream()
            source = plan.heap.empty((4, 96, 1024))
            write(source, bytes(range(256)) * 1536)
            for e in range(4):
                write(plan.layer(2).expert("w13_weight", e), bytes([e]) * 98304)
            buffer = plan.layer(2)["w13_weight"]
            interface = buffer.__cuda_array_interface__
            assert interface["data"] == (buffer.address, False) and interface["stream"] == 1, interface
            assert interface["typestr"] == "|u1" and interface["shape"] == (4, 96, 1024) and interface["version"] == 3
            assert not hasattr(buffer, "__array_interface__")
            assert source.__cuda_array_interface__["stream"] == current.cuda_stream
            assert buffer.__dlpack_device__() == (2, 0)
            assert read(interface["data"][0], 4 * 98304) == b"".join(bytes([e]) * 98304 for e in range(4))
            # another stream is put behind the plan's; a wrong one is refused
            buffer.__dlpack__(stream=current.cuda_stream)
            buffer.__dlpack__(stream=-1)
            buffer.__dlpack__()
            asked = []
            torch.utils = types.SimpleNamespace(dlpack=types.SimpleNamespace(from_dlpack=lambda capsule: asked.append(capsule)))
            buffer.torch()
            assert len(asked) == 1 and "dltensor" in repr(asked[0])
            """)

    def test_streams_are_put_in_order(self):
        out, _ = self.run_program("""
            calls = cuda.fakecuda_calls
            calls.restype = ctypes.c_long
            first, second = new_stream(), new_stream()
            array = cleave_torch.Heap("cuda").empty(100, stream=first)
            before = calls(b"cuStreamWaitEvent")
            array.__dlpack__(stream=first)
            same = calls(b"cuStreamWaitEvent")
            array.__dlpack__(stream=second)
            print(same - before, calls(b"cuStreamWaitEvent") - same)
            """)
        self.assertEqual(out, "0 1\n")

    def test_a_stream_that_is_none(self):
        self.run_program("""
            heap = cleave_torch.Heap("cuda")
            try:
                heap.stream(7)
            except cleave_torch.CleaveError as error:
                assert "device 7 has no stream" in str(error), error
            else:
                raise AssertionError
            """)

    def test_a_region(self):
        self.run_program("""
            import contextlib, os
            torch.cuda.get_allocator_backend = lambda: "native"
            made, freed = [], []

            class Allocator:
                def __init__(self, path, alloc, free):
                    library = ctypes.CDLL(path)
                    self.alloc, self.free = getattr(library, alloc), getattr(library, free)
                    self.alloc.restype = ctypes.c_void_p
                    self.alloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
                    self.free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
                def allocator(self):
                    return self

            class MemPool:
                def __init__(self, allocator):
                    self.allocator = allocator

            @contextlib.contextmanager
            def use_mem_pool(pool, device=None):
                made.append(pool)
                yield

            torch.cuda.memory.CUDAPluggableAllocator, torch.cuda.MemPool, torch.cuda.use_mem_pool = Allocator, MemPool, use_mem_pool
            with cleave_torch.region() as heap:
                allocator = made[0].allocator
                segment = allocator.alloc(20 << 20, 0, new_stream())
                assert segment and allocator.alloc(0, 0, None) is None and allocator.alloc(1 << 40, 0, None) is None
                assert heap.tell().stats(0)["live_bytes"] == 20 << 20
                blocks = heap.tell().list(0)
                assert [b for b in blocks if b[0] == segment and b[2] == 20 << 20 and b[4] == 1], blocks
            with cleave_torch.serve(device=0):
                pass
            assert made[0] is not made[1] and made[0].allocator is made[1].allocator
            allocator.free(segment, 20 << 20, 0, None)
            assert heap.tell().stats(0)["live_bytes"] == 0
            try:
                with cleave_torch.region():
                    assert allocator.alloc(1 << 40, 0, None) is None
                    raise torch.cuda.OutOfMemoryError("out of memory")
            except torch.cuda.OutOfMemoryError as error:
                if hasattr(error, "__notes__"):
                    assert "Cleave could not serve" in error.__notes__[0], error.__notes__
            torch.cuda.get_allocator_backend = lambda: "cudaMallocAsync"
            try:
                with cleave_torch.region():
                    raise AssertionError
            except cleave_torch.CleaveError as error:
                assert "native backend, or `cleave run`" in str(error)
            assert cleave_torch.install() == []
            """)

    def test_settings_come_from_the_environment(self):
        _, err = self.run_program("""
            heap = cleave_torch.Heap("cuda")
            heap.empty(1 << 20)
            try:
                heap.empty(12 << 20)
            except cleave_torch.OutOfMemory:
                pass
            else:
                raise AssertionError
            """, CLEAVE_CONF="limit:8MiB,nonsense:1")
        self.assertRegex(err, "cleave: CLEAVE_CONF: .*nonsense.*; ignored\n")

    def test_under_the_preload_library(self):
        _, err = self.run_program("""
            import json, logging
            logging.basicConfig(level=logging.INFO)
            torch.cuda.get_allocator_backend = lambda: "cudaMallocAsync"
            assert cleave_torch.preload()
            assert cleave_torch.install() and torch.cuda.memory_snapshot() == []  # before the first use of memory
            assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == 12345
            cleave_torch.uninstall()
            pointers = [ctypes.c_uint64() for _ in range(3)]
            for pointer, size in zip(pointers, (1000, 3 << 20, 5 << 20)):
                do(cuda.cuMemAllocAsync, ctypes.byref(pointer), ctypes.c_size_t(size), None)
            do(cuda.cuMemFreeAsync, pointers.pop(1), None)
            original = torch.cuda.memory.memory_stats
            names = cleave_torch.install()
            assert names == ["MemPool", "_record_memory_history", "_snapshot", "memory_snapshot", "memory_stats"], names
            assert cleave_torch.install() == []
            found = {b["address"]: b for s in torch.cuda.memory_snapshot() for b in s["blocks"] if b["state"] == "active_allocated"}
            assert {a: b["requested_size"] for a, b in found.items()} == {pointers[0].value: 1000, pointers[1].value: 5 << 20}, found
            assert sorted(torch.cuda.memory._snapshot()) == ["allocator_settings", "device_traces", "external_annotations",
                                                             "segments"]
            stats = torch.cuda.memory_stats()
            assert stats["allocated_bytes.all.current"] == 12345  # PyTorch's own word stays
            assert stats["allocation.all.current"] == 2 and stats["allocation.all.freed"] == 1, stats
            assert stats["reserved_bytes.all.current"] >= 5 << 20 and stats["inactive_split.small_pool.freed"] == 0
            torch.cuda.memory._record_memory_history(max_entries=3)
            torch.cuda.MemPool()
            try:
                torch.cuda.MemPool(object())
            except cleave_torch.CleaveError as error:
                assert "cleave run --native" in str(error)
            else:
                raise AssertionError
            # a plan's memory is the process's, like PyTorch's
            plan = cleave_torch.Plan(sys.argv[2]).bind(ahead=1)
            assert plan.heap.name == "pool"
            write(plan.layer(0).expert("w13_weight", 3), b"x" * 98304)
            assert read(plan.layer(0)["w13_weight"].address + 3 * 98304, 98304) == b"x" * 98304
            count = lambda: torch.cuda.memory_stats()["allocation.all.current"]
            assert count() == 2 + len(plan.buffers)
            try:
                plan.heap.empty(10)
            except cleave_torch.CleaveError as error:
                assert "torch.empty() is served by Cleave" in str(error)
            else:
                raise AssertionError
            with cleave_torch.region() as heap:
                assert heap.name == "pool"
            assert plan.layer(0).release()
            assert count() == 2
            del plan
            with open(sys.argv[2]) as file:
                huge = json.load(file)
            huge["buffers"][0] |= {"shape": [4, 1 << 30], "bytes": 1 << 32}
            with open(sys.argv[2], "w") as file:
                json.dump(huge, file)
            try:
                cleave_torch.Plan(sys.argv[2]).bind(ahead=1)
            except cleave_torch.OutOfMemory as error:
                assert "4.00 GiB" in str(error), error
            else:
                raise AssertionError
            cleave_torch.uninstall()
            assert torch.cuda.memory.memory_stats is original and torch.cuda.MemPool is refused
            """, preload=True)
        self.assertIn("under `cleave run`: all of it is served", err)
        self.assertIn("no history is recorded here", err)


if __name__ == "__main__":
    unittest.main(verbosity=1)
