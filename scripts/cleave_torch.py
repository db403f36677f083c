#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Cleave's explicit API in Python: the buffers of a plan as arrays and PyTorch tensors, regions of a program that are served
from Cleave, and stand-ins for what PyTorch cannot tell under `cleave run`. One file, the standard library alone; PyTorch is imported
only by what needs it. `python3 cleave_torch.py self-check` says what it finds.

    plan = cleave_torch.Plan("plan.json").bind(ahead=1)  # of `cleave plan -o`; holds room for one layer from now on
    sources = load_checkpoint()                          # tensors of plan.heap.empty(...), or made inside region()
    for i in range(plan.layers):
        layer = plan.layer(i)
        for e in range(plan.experts):
            convert(sources[i], e, out=layer.expert("w13_weight", e).torch())
        layer.check()                                    # every expert of every buffer is filled, or an error names it
        sources[i] = None                                # room for the next layer
    weight = plan.layer(0)["w13_weight"].torch()         # shares the memory, and keeps it
    with cleave_torch.region(): ...                      # PyTorch's tensors, made in here, lie in Cleave's heap
    cleave_torch.install()                               # under `cleave run`: memory_snapshot() and more work again

Memory belongs to whoever refers to it: arrays, tensors and DLPack's consumers keep what they show. When the last is gone the memory
is given back in the order of its stream, so work on other streams must have been waited for there."""
import argparse
import atexit
import collections
import contextlib
import ctypes
import errno
import logging
import math
import os
import sys
import threading
import types

log = logging.getLogger("cleave_torch")

ALL, STREAM_ANY = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF  # CLEAVE_PLAN_ALL, CLEAVE_STREAM_ANY.id
PRELOAD_VERSION = 1  # CLEAVE_PRELOAD_VERSION


class CleaveError(RuntimeError):
    """Something that Cleave refused; `errno` has its number."""

    def __init__(self, text, number=0):
        super().__init__(text)
        self.errno = abs(number)


class OutOfMemory(CleaveError, MemoryError):
    """The device is full; the text says what is on it."""


class PlanError(CleaveError, ValueError):
    """A plan that cannot be read, or a layer, buffer or expert that it does not have."""


class FillError(CleaveError):
    """An expert is asked for that counts as filled (EEXIST; unfill() says that this is meant), or some are missing (ENODATA)."""


# ---- the library ----

_KINDS = {"int": ctypes.c_int, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "i64": ctypes.c_int64, "text": ctypes.c_char_p,
          "size": ctypes.c_size_t, "ptr": ctypes.c_void_p, "none": None}


def _struct(text):
    """A structure of C from "kind name name, kind*n name, ..."."""
    fields = []
    for part in text.split(","):
        kind, *names = part.split()
        kind, _, n = kind.partition("*")
        fields += [(name, _KINDS[kind] * int(n) if n else _KINDS[kind]) for name in names]
    return type("Struct", (ctypes.Structure,), {"_fields_": fields})


_Stream = _KINDS["stream"] = _struct("u64 id handle")
_Stats = _struct("u64 held_bytes held_peak_bytes live_bytes live_peak_bytes rounding_bytes free_bytes stranded_bytes pending_bytes "
                 "cached_bytes largest_hole_bytes frames live_blocks free_blocks allocs frees failures splits merges frames_created "
                 "frames_released frames_moved device_waits host_waits event_polls limit_bytes headroom_bytes metadata_bytes "
                 "metadata_in_jemalloc reservation_bytes, u64*7 reserved")
_Failure = _struct("u64 number, u64*20 rest")  # only handed on to be printed
_Block = _struct("u64 address bytes requested stream_id, u32 state reserved")
_Info = _struct("text path model backend strategy, u32 rank moe_layers layers experts buffers, u64 layer_bytes, u64*8 reserved")
_Buffer = _struct("text name, u64 address bytes, u64*8 shape strides, u32 dims, int dtype, u32 dtype_bits experts, u64 expert_bytes, "
                  "u32 zeroed same, u64*8 reserved")
_Memory = _struct("ptr alloc free arg")
_look, _list, _print = (ctypes.CFUNCTYPE(*(_KINDS[kind] for kind in text.split()))
                        for text in ("int ptr int ptr", "int ptr int ptr size ptr", "int ptr text size"))
_KINDS.update(heap_fn=ctypes.CFUNCTYPE(ctypes.c_void_p), look_fn=_look, list_fn=_list, print_fn=_print)
_Preload = _struct("u32 version size, heap_fn heap, look_fn get_stats, list_fn blocks, look_fn last_failure, print_fn failure_print")

# Functions without "cleave_" or "cleave_heap_": the result, and the arguments; of structures and out parameters pointers.
_PROTOTYPES = """
driver_open: int ptr text | driver_close: none ptr | driver_host_address: ptr ptr u64 size | close: none ptr
open: int ptr ptr text text size | alloc: int ptr int stream size ptr | free: int ptr u64 stream | get_stats: int ptr int ptr
blocks: int ptr int ptr size ptr | trim: int ptr int u64 ptr | last_failure: int ptr int ptr | failure_print: int ptr text size
dtype_name: text int | plan_load: int ptr text text size | plan_load_rank: int ptr text u32 text size | plan_close: none ptr
plan_get_info: int ptr ptr | plan_describe: int ptr u32 ptr | plan_bind: int ptr ptr int stream u32
plan_bind_memory: int ptr ptr int stream u32 | plan_take_layer: int ptr u32 | plan_release_layer: int ptr u32 stream
plan_get_buffer: int ptr u32 text ptr | plan_fill_expert: int ptr u32 text u32 ptr ptr
plan_unfill_expert: int ptr u32 text u32 | plan_missing: i64 ptr u32 text ptr size | plan_layer_done: int ptr u32 text size
torch_heap: int ptr text size | torch_stream: int int ptr ptr | torch_pool: int ptr text size
"""


_library, _library_lock = None, threading.Lock()


def library(path=None):
    """libcleave.so, loaded once: from `path`, $CLEAVE_LIBRARY, the build beside this file, or where the system has it."""
    global _library
    with _library_lock:
        if _library is None:
            _library = _load(path or os.environ.get("CLEAVE_LIBRARY"))
        return _library


def _load(path):
    here, tried = os.path.dirname(os.path.abspath(__file__)), []
    beside = [os.path.join(here, name) for name in ("../build/src/libcleave.so", "libcleave.so", "../lib/libcleave.so")]
    for path in [path] if path else [*filter(os.path.exists, beside), "libcleave.so.0", "libcleave.so"]:
        try:
            dll = ctypes.CDLL(path)
            break
        except OSError as error:
            tried.append(f"{path}: {error}")
    else:
        raise CleaveError("libcleave.so is not found (CLEAVE_LIBRARY may have its path): " + "; ".join(tried))
    lib = types.SimpleNamespace(path=path)
    for line in _PROTOTYPES.replace("|", "\n").strip().split("\n"):
        name, _, kinds = line.strip().partition(":")
        function = getattr(dll, "cleave_" + name, None) or getattr(dll, "cleave_heap_" + name, None)
        if not function:
            raise CleaveError(f"{path} has no cleave_{name}: it is of another version than {__file__}")
        function.restype, *function.argtypes = [_KINDS[kind] for kind in kinds.split()]
        setattr(lib, name, function)
    return lib


def _refuse(status, what, kind=CleaveError):
    raise kind(f"{what}: {os.strerror(-status)}", status)


def preload():
    """What libcleave-preload.so tells, if this process runs under it; else None."""
    try:
        function = ctypes.CDLL(None).cleave_preload_table
    except AttributeError:
        return None
    function.restype = ctypes.POINTER(_Preload)
    table = function().contents
    if table.version != PRELOAD_VERSION or table.size < ctypes.sizeof(_Preload):
        raise CleaveError(f"libcleave-preload.so speaks version {table.version}, and {__file__} version {PRELOAD_VERSION}")
    return table


class Teller:
    """What tells of a heap: this library of its own, the preload library of the one under the process."""

    def __init__(self, heap=None):
        self.functions = library() if heap else preload()
        self.heap = heap or (self.functions and self.functions.heap())
        if not self.heap:
            raise CleaveError("there is no heap of Cleave's: the process is not under `cleave run`, or has not used the GPU")

    def stats(self, device):
        """cleave_heap_stats by name."""
        stats = _Stats()
        status = self.functions.get_stats(self.heap, device, ctypes.byref(stats))
        return {name: getattr(stats, name) for name, _ in _Stats._fields_[:-1]} if not status else \
            _refuse(status, f"device {device} has no statistics")

    def list(self, device):
        """[(address, bytes, requested, stream id, state)] of all that is mapped; state 1 is live, 2 pending, 3 free."""
        count, room = ctypes.c_size_t(), 0
        while True:
            blocks = (_Block * room)()
            status = self.functions.blocks(self.heap, device, blocks, room, ctypes.byref(count))
            if status:
                _refuse(status, f"device {device} has no blocks")
            if count.value <= room:
                return [(b.address, b.bytes, b.requested, b.stream_id, b.state) for b in blocks[:count.value]]
            room = count.value + count.value // 8  # more may come meanwhile

    def failure(self, device):
        """Why the last request failed, for people; "" if none has."""
        failure, text = _Failure(), ctypes.create_string_buffer(4096)
        if self.functions.last_failure(self.heap, device, ctypes.byref(failure)):
            return ""
        self.functions.failure_print(ctypes.byref(failure), text, len(text))
        return text.value.decode()


# At the end of a process nothing is freed any more: the driver may be gone, and so may be the functions here.
_ending = False


@atexit.register
def _end():
    global _ending
    _ending = True
    for managed, *_ in _exports.values():  # consumers that outlive the interpreter must not call into it
        managed.deleter = None
    ctypes.pythonapi.Py_IncRef(ctypes.py_object((_exports, _drop)))


# ---- types ----

# Of elements: the name in PyTorch, bytes, DLPack's code, and what array interfaces call it ("": they have no word).
_Type = collections.namedtuple("_Type", "name size code array")

# Codes of DLPack: 0 signed, 1 unsigned, 2 float, 4 bfloat; from its version 1.1: 10 e4m3fn, 12 e5m2, 14 e8m0fnu.
DTYPES = {name: _Type(name, size, code, array) for name, size, code, array in (
    ("uint8", 1, 1, "|u1"), ("int8", 1, 0, "|i1"), ("int16", 2, 0, "<i2"), ("int32", 4, 0, "<i4"), ("int64", 8, 0, "<i8"),
    ("float16", 2, 2, "<f2"), ("bfloat16", 2, 4, ""), ("float32", 4, 2, "<f4"), ("float64", 8, 2, "<f8"),
    ("float8_e4m3fn", 1, 10, ""), ("float8_e5m2", 1, 12, ""), ("float8_e8m0fnu", 1, 14, ""))}


def _dtype(of):
    """By name, or a torch.dtype."""
    name = of.name if isinstance(of, _Type) else str(of).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"{name}: a dtype was expected that is one of {', '.join(DTYPES)}")
    return DTYPES[name]


# ---- DLPack ----

_KINDS.update(u8=ctypes.c_uint8, u16=ctypes.c_uint16, list=ctypes.POINTER(ctypes.c_int64))
_TENSOR = "ptr data, int device_type device_id ndim, u8 code bits, u16 lanes, list shape strides, u64 byte_offset"  # DLTensor
_Managed, _Versioned = _struct(_TENSOR + ", ptr context deleter"), _struct("u32 major minor, ptr context deleter, u64 flags, " + _TENSOR)
_exports = {}  # by address of the managed tensor: what must live until its deleter is called


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(address):
    _exports.pop(address, None)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _drop(capsule):
    """A capsule that nobody took: its name is still the one that it was made with."""
    for name in (b"dltensor", b"dltensor_versioned"):
        if ctypes.pythonapi.PyCapsule_IsValid(capsule, name):
            _exports.pop(ctypes.pythonapi.PyCapsule_GetPointer(capsule, name), None)


ctypes.pythonapi.PyCapsule_IsValid.argtypes = ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
ctypes.pythonapi.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object


def _order(producer, consumer):
    """Work on `consumer` from here on comes after what is on `producer`; both are CUstreams (0: the legacy default stream)."""
    if producer == consumer or {producer, consumer} == {0, 1}:
        return
    cuda, event = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    answers = (cuda.cuEventCreate(ctypes.byref(event), 2), cuda.cuEventRecord(event, ctypes.c_void_p(producer)),
               cuda.cuStreamWaitEvent(ctypes.c_void_p(consumer), event, 0), cuda.cuEventDestroy_v2(event))
    if any(answers):
        raise BufferError(f"streams cannot be put in order: the driver answers {answers}")


def _row_major(shape):
    return tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))


class Array:
    """Elements on a device, as DLPack and, where that has a word for the type, the CUDA array interface show them. Has no copy:
    consumers share the memory, and keep it."""

    def __init__(self, owner, address, shape, strides, dtype):
        self._owner, self.address, self.dtype = owner, address, dtype
        self.shape, self.strides = tuple(shape), tuple(strides)

    def __repr__(self):
        return f"<{type(self).__name__} {list(self.shape)} {self.dtype.name} at {self.address:#x}>"

    def _contiguous(self):
        return all(n == 1 or got == want for n, got, want in zip(self.shape, self.strides, _row_major(self.shape)))

    def _data(self):
        """What a consumer is given: the address on the host, if the device is simulated with memory."""
        heap, last = self._owner.heap, sum((n - 1) * stride for n, stride in zip(self.shape, self.strides))
        if not heap.host:
            return self.address
        return heap._lib.driver_host_address(heap._driver, self.address, (last + 1) * self.dtype.size)

    def _interface(self, host):
        if host != self._owner.heap.host:
            raise AttributeError("this array is on the host" if self._owner.heap.host else "this array is on a GPU")
        if not self.dtype.array:
            raise AttributeError(f"array interfaces have no word for {self.dtype.name}: use .torch(), DLPack, or .view('uint8')")
        strides = None if self._contiguous() else tuple(stride * self.dtype.size for stride in self.strides)
        return {"shape": self.shape, "typestr": self.dtype.array, "data": (self._data(), False), "strides": strides, "version": 3}

    __array_interface__ = property(lambda self: self._interface(True))
    __cuda_array_interface__ = property(lambda self: {**self._interface(False), "stream": self._owner.stream.handle or 1})

    def view(self, dtype):
        """The same bytes as another type of the same size, or all of them, if they are side by side, as a row of bytes."""
        dtype = _dtype(dtype)
        if dtype.size == self.dtype.size:
            return Array(self._owner, self.address, self.shape, self.strides, dtype)
        if dtype.size != 1 or not self._contiguous():
            raise ValueError(f"{self!r} cannot be seen as {dtype.name}")
        return Array(self._owner, self.address, (self.dtype.size * math.prod(self.shape),), (1,), dtype)

    def __dlpack_device__(self):
        return (1, 0) if self._owner.heap.host else (2, self._owner.device)  # kDLCPU, kDLCUDA

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy:
            raise BufferError("this memory can be shared, not copied")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"this is on DLPack's device {self.__dlpack_device__()}, not on {tuple(dl_device)}")
        if not self._owner.heap.host and stream != -1:  # None means the legacy default stream
            _order(self._owner.stream.handle, 1 if stream is None else stream)
        dims = ctypes.c_int64 * max(len(self.shape), 1)
        shape, strides = dims(*self.shape), dims(*self.strides)
        kind, name, more = _Managed, b"dltensor", {}
        if max_version is not None and max_version[0] >= 1:
            kind, name, more = _Versioned, b"dltensor_versioned", {"major": 1, "minor": 1}
        device_type, device_id = self.__dlpack_device__()
        managed = kind(data=self._data(), device_type=device_type, device_id=device_id, ndim=len(self.shape), code=self.dtype.code,
                       bits=self.dtype.size * 8, lanes=1, shape=shape, strides=strides,
                       deleter=ctypes.cast(_delete, ctypes.c_void_p), **more)
        address = ctypes.addressof(managed)
        _exports[address] = (managed, shape, strides, self._owner, name)
        return ctypes.pythonapi.PyCapsule_New(address, name, ctypes.cast(_drop, ctypes.c_void_p))

    def torch(self):
        """A tensor that shares this memory, in the order of PyTorch's current stream."""
        import torch
        stream = None
        if not self._owner.heap.host:
            stream = torch.cuda.current_stream(self._owner.device).cuda_stream or 1
        carried = self.view("uint8") if self.dtype.code >= 10 else self  # types that came to DLPack late go as bytes
        tensor = torch.utils.dlpack.from_dlpack(carried.__dlpack__(stream=stream))
        return tensor.view(getattr(torch, self.dtype.name)) if carried is not self else tensor


# ---- heaps ----

class Heap:
    """Where memory comes from.

    "cuda": the heap of this process for PyTorch and for plans, over the GPU; its settings are those of CLEAVE_CONF. "pool": memory
    by cuMemAllocAsync, which under `cleave run` is Cleave's. "sim-backed[:SIZE]": a device that is simulated, with memory on
    the host, so that a program can be tried without a GPU; "sim[:SIZE]": the same without memory. None: "pool" under `cleave
    run`, else "cuda"."""

    def __init__(self, name=None, settings=None):
        self._lib, self._driver, self._heap, self._pool = library(), None, None, None
        self.name = name or ("pool" if preload() else "cuda")
        self.host = self.name.startswith("sim-backed")
        self.simulated = self.name.startswith("sim")
        heap, driver, why = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(4608)
        if settings is not None and not self.simulated:
            raise ValueError(f"the settings of \"{self.name}\" are in CLEAVE_CONF")
        if self.name == "cuda":
            status = self._lib.torch_heap(ctypes.byref(heap), why, len(why))
        elif self.name == "pool":
            self._pool = _Memory()
            status = self._lib.torch_pool(ctypes.byref(self._pool), why, len(why))
        else:
            status = self._lib.driver_open(ctypes.byref(driver), self.name.encode())
            if status:
                raise ValueError(f"\"{self.name}\" is no memory: cuda, pool, sim[:SIZE] or sim-backed[:SIZE] was expected")
            self._driver = driver
            status = self._lib.open(ctypes.byref(heap), driver, settings.encode() if settings else None, why, len(why))
        if status:
            raise CleaveError(f"the heap \"{self.name}\" cannot be opened: {why.value.decode() or os.strerror(-status)}", status)
        self._heap = heap

    def __del__(self):
        if not _ending and getattr(self, "_driver", None):
            if self._heap:
                self._lib.close(self._heap)
            self._lib.driver_close(self._driver)

    def stream(self, device=0, handle=None):
        """A stream of this heap: `handle` is a CUstream as a number, or has a number `cuda_stream` as PyTorch's streams do. None:
        PyTorch's current stream, if it is in use, else the legacy default stream."""
        if handle is None and not self.simulated:
            torch = sys.modules.get("torch")
            in_use = torch is not None and torch.cuda.is_initialized()
            handle = torch.cuda.current_stream(device) if in_use else 0
        handle = int(getattr(handle, "cuda_stream", handle or 0))
        stream = _Stream(handle + 1, handle)
        if not self.simulated:
            status = self._lib.torch_stream(device, handle or None, ctypes.byref(stream))
            if status:
                _refuse(status, f"device {device} has no stream {handle:#x} (is there a context? a first tensor there makes one)")
        return stream

    def tell(self):
        """What tells of this memory: .stats(device), .list(device) of blocks, .failure(device)."""
        return Teller(None if self._pool else self._heap)

    def trim(self, device=0, keep=0):
        """Gives free memory back to the driver until at most `keep` bytes are held; not under `cleave run`: empty_cache() does that."""
        self.check(self._lib.trim(self._heap, device, keep, None), "to give memory back", device)

    def check(self, status, what, device):
        """Raises what an error of the library means."""
        if status == -errno.ENOMEM:
            why = self.tell().failure(device) if not self._pool or preload() else ""
            raise OutOfMemory(f"{what}: {why or 'the device is out of memory'}", status)
        if status < 0:
            _refuse(status, what)

    def empty(self, shape, dtype="uint8", device=0, stream=None):
        """An array of the heap's memory, contents undefined; given back, in the order of the stream, with its last user."""
        if self._pool:
            raise CleaveError("under `cleave run` torch.empty() is served by Cleave")
        dtype, shape = _dtype(dtype), (shape,) if isinstance(shape, int) else tuple(shape)
        if not all(n > 0 for n in shape):
            raise ValueError(f"an array of shape {shape} has no elements")
        block = _BlockMemory(self, device, self.stream(device, stream), math.prod(shape) * dtype.size)
        return Array(block, block.address, shape, _row_major(shape), dtype)


class _BlockMemory:
    """A block of a heap, for as long as something refers to it."""

    def __init__(self, heap, device, stream, size):
        self.heap, self.device, self.stream, self.address = heap, device, stream, 0
        address = ctypes.c_uint64()
        status = heap._lib.alloc(heap._heap, device, stream, size, ctypes.byref(address))
        heap.check(status, f"{size} bytes on device {device}", device)
        self.address = address.value

    def __del__(self):
        if self.address and not _ending:
            self.heap._lib.free(self.heap._heap, self.address, self.stream)


# ---- plans ----

class _PlanHandle:
    """The plan of the library; closed when neither the Plan nor any memory of it is referred to any more."""

    def __init__(self, path, rank):
        self.lib, self.plan, self.heap, self.stream, self.device = library(), None, None, None, 0
        plan, why = ctypes.c_void_p(), ctypes.create_string_buffer(4608)
        if rank is not None and not 0 <= rank <= ALL:
            raise PlanError(f"{path}: there is no rank {rank}")
        load, of = (self.lib.plan_load, ()) if rank is None else (self.lib.plan_load_rank, (rank,))
        status = load(ctypes.byref(plan), os.fsencode(path), *of, why, len(why))
        if status:
            raise PlanError(why.value.decode(errors="replace") or f"{path}: {os.strerror(-status)}", status)
        self.plan = plan
        self.users = collections.Counter()  # _LayerMemory objects, by layer
        self.lock = threading.RLock()

    def __del__(self):
        if getattr(self, "plan", None) and not _ending:
            self.lib.plan_close(self.plan)

    def check(self, status, what):
        """Raises what an error of the library means."""
        if status == -errno.ENXIO:
            raise CleaveError(f"{what}: the plan is not bound to memory yet (Plan.bind)", status)
        if status in (-errno.EINVAL, -errno.ENOENT):
            raise PlanError(f"{what}: the plan has no such layer, buffer or expert", status)
        if status < 0:
            self.heap.check(status, what, self.device)


class _LayerMemory:
    """The memory of a layer; given back with the last of these for the layer."""

    def __init__(self, handle, number):
        self.handle, self.number, self.taken = handle, number, False
        with handle.lock:
            handle.check(handle.lib.plan_take_layer(handle.plan, number), f"layer {number}")
            handle.users[number] += 1
        self.taken, self.heap, self.stream, self.device = True, handle.heap, handle.stream, handle.device

    def __del__(self):
        if self.taken and not _ending:
            with self.handle.lock:
                self.handle.users[self.number] -= 1
                if not self.handle.users[self.number]:
                    self.handle.lib.plan_release_layer(self.handle.plan, self.number, self.stream)


class Buffer(Array):
    """A buffer of a layer: an array with a `name`, of `experts` runs of `expert_bytes`. `zeroed`: it has padding that must be zeros,
    so it is filled with those before its experts are. `same`: a conversion leaves it as it was loaded."""

    def __init__(self, memory, b):
        name = b.name.decode()
        dtype = library().dtype_name(b.dtype).decode()
        super().__init__(memory, b.address, b.shape[:b.dims], b.strides[:b.dims], DTYPES[dtype])
        self.name, self.experts, self.expert_bytes, self.bytes = name, b.experts, b.expert_bytes, b.bytes
        self.zeroed, self.same = bool(b.zeroed), bool(b.same)


class Layer:
    """The buffers of a layer, layer[name], and the books of which of their experts are filled."""

    def __init__(self, buffers, memory):
        self._buffers, self._memory, self.number = buffers, memory, memory.number

    def _call(self, function, name, *arguments):
        """The library's answer, if it is no error but one that the caller knows of: EEXIST and ENODATA."""
        if self._memory is None:
            raise CleaveError(f"layer {self.number} was released: ask the plan for it again")
        if any(isinstance(number, int) and not 0 <= number <= ALL for number in arguments):
            raise PlanError(f"layer {self.number}, {name}: the plan has no such expert, {arguments[0]}")
        handle = self._memory.handle
        status = getattr(handle.lib, function)(handle.plan, self.number, *([name.encode()] if name else []), *arguments)
        if status not in (-errno.EEXIST, -errno.ENODATA):
            handle.check(status, f"layer {self.number}, {name or 'all buffers'}")
        return status

    def __getitem__(self, name):
        found = _Buffer()
        self._call("plan_get_buffer", name, ctypes.byref(found))
        return Buffer(self._memory, found)

    def keys(self):
        return self._buffers.keys()

    def expert(self, name, e):
        """Where an expert of a buffer lies, for the caller to write all of it; it counts as filled from now on. FillError, if it
        did before. A buffer that is not divided by experts is filled as a whole, as expert 0."""
        address = ctypes.c_uint64()
        if self._call("plan_fill_expert", name, e, ctypes.byref(address), None) == -errno.EEXIST:
            raise FillError(f"layer {self.number}, {name}, expert {e} is filled already", errno.EEXIST)
        b = self._buffers[name]
        skip = 1 if b.shape and b.shape[0] == b.experts else 0
        return Array(self._memory, address.value, b.shape[skip:], b.strides[skip:], b.dtype)

    def unfill(self, name, e):
        """The expert is not filled after all, or is to be filled anew."""
        self._call("plan_unfill_expert", name, e)

    def missing(self):
        """{name: [expert, ...]} of what is not filled; empty when the layer is done."""
        found = {}
        for name, buffer in self._buffers.items():
            experts = (ctypes.c_uint32 * buffer.experts)()
            count = self._call("plan_missing", name, experts, len(experts))
            if count:
                found[name] = experts[:count]
        return found

    def check(self):
        """FillError, which names what is missing, unless every expert of every buffer is filled."""
        why = ctypes.create_string_buffer(4096)
        if self._call("plan_layer_done", None, why, len(why)) == -errno.ENODATA:
            raise FillError(why.value.decode(), errno.ENODATA)

    def release(self):
        """Lets go of the memory. It is given back once no array and no tensor of it is left, in the order of the plan's stream; to ask
        for the layer before that finds it as it is. True if that was now."""
        memory, self._memory = self._memory, None
        if memory is None:
            return False
        handle = memory.handle
        del memory
        return not handle.users[self.number]


class Plan:
    """A plan of `cleave plan -o PATH`, for a rank if it is of all ranks. `buffers`: those of every layer, by name and without
    memory. `heap`: what the plan is bound to, or None."""

    def __init__(self, path, rank=None):
        self._handle, self._layers, self.heap, self.buffers = _PlanHandle(path, rank), {}, None, {}
        lib, plan, info = self._handle.lib, self._handle.plan, _Info()
        lib.plan_get_info(plan, ctypes.byref(info))
        self.path, self.model, self.backend, self.strategy = (
            text.decode(errors="replace") for text in (info.path, info.model, info.backend, info.strategy))
        self.rank, self.moe_layers, self.layers, self.experts = info.rank, info.moe_layers, info.layers, info.experts
        self.layer_bytes = info.layer_bytes
        for i in range(info.buffers):
            found = _Buffer()
            lib.plan_describe(plan, i, ctypes.byref(found))
            self.buffers[found.name.decode()] = Buffer(None, found)

    def bind(self, heap=None, device=0, stream=None, ahead=0):
        """Memory comes from `heap` (a Heap, or its name), on that device and in the order of that stream (Heap.stream). For the first
        `ahead` layers (ALL: for all) it is taken at once, for each other layer when that is first asked for. Returns the plan."""
        handle = self._handle
        with handle.lock:
            if handle.heap is not None:
                raise CleaveError("the plan is bound already", errno.EALREADY)
            if ahead != ALL and not 0 <= ahead <= self.layers:
                raise PlanError(f"{ahead} layers ahead: the plan has {self.layers}")
            found = heap if isinstance(heap, Heap) else Heap(heap)
            handle.heap, handle.device, handle.stream = found, device, found.stream(device, stream)
            where, bind = found._heap, handle.lib.plan_bind
            if found._pool:
                where, bind = ctypes.byref(found._pool), handle.lib.plan_bind_memory
            try:
                handle.check(bind(handle.plan, where, device, handle.stream, ahead), f"{self.path}: {ahead} layers ahead")
            except BaseException:
                handle.heap = None
                raise
            self.heap = found
            for number in range(min(ahead, self.layers)):
                self.layer(number)
        return self

    def layer(self, number):
        """The buffers of a layer (from 0, of this rank's); takes their memory, unless it is there."""
        handle = self._handle
        with handle.lock:
            if not 0 <= number < self.layers:
                raise PlanError(f"the plan has layers 0 to {self.layers - 1}, and no {number}")
            if number not in self._layers or self._layers[number]._memory is None:
                self._layers[number] = Layer(self.buffers, _LayerMemory(handle, number))
            return self._layers[number]


# ---- what PyTorch is told ----

_STATES = {1: "active_allocated", 2: "inactive", 3: "inactive"}


def snapshot(blocks):
    """PyTorch's format of memory snapshots, from {device: what Teller.list() answers}, without a history; segments are mapped runs."""
    segments = []
    for device, listed in sorted(blocks.items()):
        end = None
        for address, size, requested, stream, state in listed:
            stream = 0 if stream == STREAM_ANY else stream  # viewers cannot read numbers of nine bytes
            if address != end:
                segments.append({"device": device, "address": address, "total_size": 0, "allocated_size": 0, "active_size": 0,
                                 "requested_size": 0, "stream": stream, "segment_type": "large", "segment_pool_id": (0, 0),
                                 "is_expandable": True, "frames": [], "blocks": []})
            end, segment = address + size, segments[-1]
            segment["blocks"].append({"address": address, "size": size, "requested_size": requested, "state": _STATES[state],
                                      "frames": []})
            segment["total_size"] += size
            if state == 1:
                for name, more in (("allocated_size", size), ("active_size", size), ("requested_size", requested)):
                    segment[name] += more
    return {"segments": segments, "device_traces": [[] for _ in range(max(blocks, default=-1) + 1)], "external_annotations": [],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""), "max_split_size": -1,
                                   "garbage_collection_threshold": 0.0, "expandable_segments": False}}


def statistics(stats):
    """The keys of torch.cuda.memory_stats(), from Teller.stats(); what Cleave does not count is 0."""
    kinds = "allocation segment active inactive_split allocated_bytes reserved_bytes active_bytes inactive_split_bytes requested_bytes"
    kinds, fields = kinds.split(), ("current", "peak", "allocated", "freed")
    found = {f"{kind}.{pool}.{field}": 0 for kind in kinds for pool in ("all", "large_pool", "small_pool") for field in fields}
    found.update({f"oversize_{kind}.{field}": 0 for kind in ("allocations", "segments") for field in fields})
    for kind in ("allocation", "active"):
        found.update({f"{kind}.all.current": stats["live_blocks"], f"{kind}.all.allocated": stats["allocs"],
                      f"{kind}.all.freed": stats["frees"]})
    for kind, ours in (("allocated", "live"), ("active", "live"), ("requested", "live"), ("reserved", "held")):
        found.update({f"{kind}_bytes.all.current": stats[ours + "_bytes"], f"{kind}_bytes.all.peak": stats[ours + "_peak_bytes"]})
    found.update({"segment.all.current": stats["frames"], "segment.all.allocated": stats["frames_created"],
                  "segment.all.freed": stats["frames_released"], "inactive_split_bytes.all.current": stats["stranded_bytes"],
                  "num_ooms": stats["failures"], "num_device_alloc": stats["frames_created"],
                  "num_device_free": stats["frames_released"], "num_alloc_retries": 0, "num_sync_all_streams": stats["host_waits"],
                  "max_split_size": -1})
    return found


class _PoolStandIn:
    """torch.cuda.MemPool where the backend has no pools: all memory is Cleave's, which needs none."""

    def __init__(self, allocator=None, *_, **__):
        if allocator is not None:
            raise CleaveError("a MemPool with an allocator of its own needs PyTorch's native backend: cleave run --native")
        self.id, self.allocator = (0, 0), None


_patched = []  # (module, name, what was there)


def install():
    """In a process under `cleave run` gives PyTorch the functions that its backend cudaMallocAsync refuses: memory_snapshot(), _snapshot()
    (and with it _dump_snapshot()), the missing keys of memory_stats() (and with it memory_summary()), _record_memory_history(),
    which records nothing, MemPool and use_mem_pool(), which do nothing. Returns the names; none if nothing is to be done."""
    import torch
    memory, tell = torch.cuda.memory, Teller
    if _patched or not preload() or torch.cuda.get_allocator_backend() != "cudaMallocAsync":
        return []
    original_stats = memory.memory_stats

    def of(device):
        if device is None:
            return torch.cuda.current_device()
        return device if isinstance(device, int) else torch.device(device).index or 0

    def take_snapshot(*_, **__):
        blocks = {device: [] for device in range(torch.cuda.device_count())}
        for device in blocks:
            with contextlib.suppress(CleaveError):  # a device, or a process, that has not been used yet
                blocks[device] = tell().list(device)
        return snapshot(blocks)

    def memory_stats(device=None):
        found = original_stats(device)
        with contextlib.suppress(CleaveError):
            for name, value in statistics(tell().stats(of(device))).items():
                found[name] = found.get(name) or value
        return found

    def record_memory_history(enabled="all", *_, **__):
        if enabled:
            log.warning("no history is recorded here: `cleave run --trace FILE` records one, which `cleave convert` makes a snapshot")

    stand_ins = {"memory_stats": memory_stats, "_snapshot": take_snapshot,
                 "memory_snapshot": lambda *_, **__: take_snapshot()["segments"],
                 "_record_memory_history": record_memory_history, "MemPool": _PoolStandIn,
                 "use_mem_pool": lambda *_, **__: contextlib.nullcontext()}
    for module in (memory, torch.cuda):
        for name, stand_in in stand_ins.items():
            if hasattr(module, name):
                _patched.append((module, name, getattr(module, name)))
                setattr(module, name, stand_in)
    return sorted({name for _, name, _ in _patched})


def uninstall():
    """Undoes install()."""
    while _patched:
        setattr(*_patched.pop())


# ---- regions ----

_allocators = []  # PyTorch frees what is left through them, until the process ends


@contextlib.contextmanager
def region(device=None):
    """Tensors that this thread makes inside lie in the heap "cuda", in which plans and Heap("cuda").empty() have theirs: PyTorch's
    own allocator takes its segments from there. What it caches of them it gives back in torch.cuda.empty_cache(), once the
    region is left. Under `cleave run` there is nothing to do, which is logged. Yields the Heap."""
    import torch
    if preload():
        log.info("the process is under `cleave run`: all of it is served from Cleave")
        yield Heap("pool")
        return
    backend = torch.cuda.get_allocator_backend()
    if backend != "native":
        raise CleaveError(f"a region needs PyTorch's native backend, or `cleave run`; the backend is {backend}")
    heap = Heap("cuda")
    if not _allocators:
        _allocators.append(torch.cuda.memory.CUDAPluggableAllocator(heap._lib.path, "cleave_torch_alloc", "cleave_torch_free"))
    pool = torch.cuda.MemPool(_allocators[0].allocator())
    try:
        with torch.cuda.use_mem_pool(pool, device=device):
            yield heap
    except torch.cuda.OutOfMemoryError as error:
        if hasattr(error, "add_note"):
            error.add_note("cleave: " + heap.tell().failure(torch.cuda.current_device() if device is None else device))
        raise


serve = region


# ---- the command ----

def self_check(out=sys.stdout):
    """Says what is found on this machine, and tries what needs no GPU; whether that went well."""
    def say(what, found):
        print(f"{what:>12}: {found}", file=out)
    try:
        say("library", library().path)
        say("cleave run", "this process is " + ("" if preload() else "not ") + "under it")
        heap = Heap("sim-backed:16MiB")
        array = heap.empty(15, "int32")
        view = (ctypes.c_int32 * 15).from_address(array.__array_interface__["data"][0])
        view[:] = range(15)
        good = heap.tell().stats(0)["live_blocks"] == 1 and list(view) == list(range(15))
        say("without GPU", "works" if good else "does not work")
    except CleaveError as error:
        say("error", error)
        return False
    try:
        say("GPU", f"the heap \"{Heap('cuda').name}\" can be opened")
    except CleaveError as error:
        say("GPU", error)
    try:
        import torch
        say("PyTorch", f"{torch.__version__}, backend {torch.cuda.get_allocator_backend()}, "
                       f"{torch.cuda.device_count() if torch.cuda.is_available() else 0} GPUs")
    except ImportError:
        say("PyTorch", "not installed")
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["self-check"], help="say what is found on this machine")
    parser.parse_args()
    sys.exit(0 if self_check() else 1)
