#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# test_stack_python.py MINOR PROBE EMBED OFFSETS [--bench | TEST...]
#
# Python frames as tracing/record reads them, compared with what traceback says of the same place, in CPython 3.MINOR. PROBE and
# EMBED are made from stack_probe.c and stack_embed.c, OFFSETS is scripts/python_offsets. The interpreter is this one if it is of
# that version; else the command in CLEAVE_PYTHON_3_MINOR, python3.MINOR in PATH, or one of pyenv's. Exits 77 if there is none.

import asyncio
import atexit
import contextlib
import ctypes
import glob
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import traceback
import unittest

PYTHON_MAX = 64
PYTHON_LIMIT_NS = 300


def find_interpreter(minor):
    named = os.environ.get("CLEAVE_PYTHON_3_%d" % minor)
    if named:
        return shlex.split(named)
    paths = [shutil.which("python3.%d" % minor)]
    paths += sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.%d.*/bin/python3" % minor)))
    for path in paths:
        # a name in PATH may be a stub of pyenv's that finds nothing
        if path and subprocess.run([path, "-c", "import ctypes"], capture_output=True).returncode == 0:
            return [path]
    return None


def load(python_max=PYTHON_MAX):
    """Both ways to call the probe, and the buffer that it writes to."""
    global held, freed, buffer
    held, freed = ctypes.PyDLL(PROBE), ctypes.CDLL(PROBE)
    for lib in held, freed:
        lib.probe_capture.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        lib.probe_capture.restype = ctypes.c_long
        lib.probe_under_lock.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        lib.probe_under_lock.restype = ctypes.c_long
        lib.probe_foreign_thread.restype = ctypes.c_long
        lib.probe_cost.restype = ctypes.c_double
        lib.probe_lost.restype = ctypes.c_uint64
        lib.probe_said.restype = ctypes.c_char_p
    buffer = threading.local()
    if not held.probe_open(16, python_max):
        sys.exit("clv_stack_open: %s" % held.probe_said())
    if python_max and held.probe_minor() != sys.version_info.minor:
        sys.exit("frames of this Python are not read: %s" % held.probe_said())


def my_buffer():
    if not hasattr(buffer, "bytes"):
        buffer.bytes = ctypes.create_string_buffer(1 << 18)
    return buffer.bytes


def frames_in(raw):
    fields = raw.value.decode().split("\1")[:-1]
    return [(fields[i], fields[i + 1], int(fields[i + 2])) for i in range(0, len(fields), 3)]


def readable(text):
    """As UTF-8 can say it: what is no character is U+FFFD."""
    return "".join("\ufffd" if 0xD800 <= ord(c) < 0xE000 else c for c in text)


def by_traceback(summary):
    return [(readable(f.filename), readable(f.name), f.lineno or 0) for f in reversed(summary)][:PYTHON_MAX]


class Snapshots(list):
    """Pairs of what the probe and what traceback says of the place where take() is called."""

    def take(self, *_):
        for lib in held, freed:
            raw = my_buffer()
            n, expected = lib.probe_capture(raw, len(raw)), traceback.extract_stack()
            self.append((n, frames_in(raw), by_traceback(expected)))
        return self


class Frames(unittest.TestCase):
    def check(self, snapshots, times, depth):
        self.assertEqual(len(snapshots), 2 * times)
        for n, got, expected in snapshots:
            self.assertGreater(n, depth)
            self.assertEqual(got, expected)
        self.assertEqual(held.probe_lost(), 0)

    def test_nested_functions(self):
        s = Snapshots()

        def outer(a):
            def inner(b, *rest, key=1):
                (lambda: s.take())()
                return [
                    b,
                    s.take(),
                ]

            return inner(a + 1, 2, key=(
                3))

        for _ in range(3):
            outer(1)
        self.check(s, 6, 3)

    def test_comprehensions(self):
        s = Snapshots()
        [s.take() for _ in range(2)]
        {s.take() is s for _ in range(2)}
        {1: s.take() for _ in range(1)}
        list(s.take() for _ in range(2))
        [[s.take() for _ in range(1)] for _ in range(2)]
        self.check(s, 9, 1)

    def test_generators(self):
        s = Snapshots()

        def leaf():
            s.take()
            got = yield 1
            s.take(got)
            try:
                yield 2
            finally:
                s.take()

        def through():
            yield 0
            yield from leaf()

        g = through()
        next(g)
        next(g)
        g.send("x")
        g.close()
        self.check(s, 3, 3)

    def test_coroutines(self):
        s = Snapshots()

        async def leaf():
            s.take()
            await asyncio.sleep(0)
            s.take()

        @contextlib.asynccontextmanager
        async def around():
            s.take()
            yield
            s.take()

        async def items():
            for i in range(2):
                await asyncio.sleep(0)
                yield s.take()

        async def main():
            async with around():
                await asyncio.gather(leaf(), leaf())
            async for _ in items():
                s.take()

        asyncio.run(main())
        self.check(s, 10, 3)

    def test_decorators_and_class_bodies(self):
        s = Snapshots()

        def decorate(function):
            s.take()

            def wrapper(*args):
                return function(*args)
            return wrapper

        class Body:
            s.take()

            @decorate
            def method(self):
                s.take()

            @property
            def value(self):
                return s.take()

            def __len__(self):
                s.take()
                return 1

        b = Body()
        b.method()
        b.value
        len(b)          # from C
        sorted([2, 1], key=s.take)
        self.check(s, 7, 1)

    def test_exceptions(self):
        s = Snapshots()
        try:
            try:
                raise ValueError
            except ValueError:
                s.take()
                raise KeyError
            finally:
                s.take()
        except KeyError:
            s.take()
        with contextlib.suppress(OSError):
            s.take()
        self.check(s, 4, 1)

    def test_names_that_are_not_ascii(self):
        s = Snapshots()
        for name in ("na\u00efve.py", "\u0444\u0430\u0439\u043b.py", "\u6f22\u5b57/\U0001f389.py", "odd\udcff.py", "", "x" * 3000):
            exec(compile("def f\u00fcr_\u6f22():\n  s.take()\nf\u00fcr_\u6f22()", name, "exec"), {"s": s})
        for n, got, expected in s:
            expected[:] = [(f or "?", *rest) for f, *rest in expected]
        self.check(s, 6, 3)

    def test_long_code(self):
        s = Snapshots()
        far = "s.take()\n" + "\n" * 70000 + "s.take();" + " " * 5000 + "s.take()\nif 1:\n" + " pass\n" * 3000 + " s.take()\n"
        far += "x = [" + "1,\n" * 40000 + "s.take()]\n" + "".join("y%d = 1 + x[0]\n" % i for i in range(3000)) + "s.take()\n"
        far += "s.take(" + "".join("\n\n(" for _ in range(60)) + "s.take()" + ")\n" * 60 + ")\n"
        exec(compile(far, "far.py", "exec"), {"s": s})
        self.check(s, 8, 2)

    def test_deep_recursion(self):
        s = Snapshots()

        def down(n):
            if n:
                down(n - 1)
            else:
                s.take()

        down(PYTHON_MAX // 2)
        down(500)
        self.check(s, 2, PYTHON_MAX // 2)
        self.assertEqual(s[-1][0], PYTHON_MAX)

    def test_threads(self):
        snapshots = [Snapshots() for _ in range(4)]

        def work(s, i):
            for k in range(50):
                if (k + i) % 3 == 0:
                    s.take()
                else:
                    list(map(s.take, [k]))

        threads = [threading.Thread(target=work, args=(s, i)) for i, s in enumerate(snapshots)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for s in snapshots:
            self.check(s, 50, 3)

    def test_threads_of_c(self):
        self.assertEqual(freed.probe_foreign_thread(), 0)
        s = Snapshots()
        called = ctypes.CFUNCTYPE(None)(lambda: s.take() and None)
        self.assertEqual(freed.probe_call_in_thread(called), 0)
        self.check(s, 1, 1)
        self.assertEqual(len(s[0][1]), 2)  # the lambda and take

    def test_callbacks_of_c(self):
        s = Snapshots()
        compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda a, b: len(s.take()) and 0)
        one = (ctypes.c_int * 1)(1)
        ctypes.CDLL(None).bsearch(one, one, 1, ctypes.sizeof(ctypes.c_int), compare)
        self.check(s, 1, 3)

    def test_traced_code(self):
        """Tracing replaces instructions and calls back in the midst of them."""
        s = Snapshots()

        def tracer(frame, event, arg):
            if frame.f_code.co_name == "traced" and event == "line" and len(s) < 6:
                s.take()
            return tracer

        def traced():
            a = 1
            b = a + 1
            return b

        before = sys.gettrace()
        sys.settrace(tracer)
        try:
            traced()
        finally:
            sys.settrace(before)
        traced()
        s.take()
        self.check(s, 4, 2)

    def test_reused_addresses(self):
        """Code objects that are freed, and others that come to lie where they were."""
        s = Snapshots()
        seen, reused = set(), 0
        for i in range(400):
            blank = i % 7 + 1
            name = "<gen %d>" % (i % 10)
            function = "f%d" % (i % 3)
            source = "%sdef %s():\n%s return s.take()\n%s%s()" % ("\n" * (i % 5), function, "\n" * blank, "\n" * (i % 4), function)
            code = compile(source, name, "exec")
            reused += id(code) in seen
            seen.add(id(code))
            exec(code, {"s": s})
            del code
        self.assertGreater(reused, 20)  # or this shows nothing
        self.check(s, 400, 2)

    def test_reused_addresses_of_long_code(self):
        """The same, where the lines differ in the midst of a long table."""
        s = Snapshots()
        seen, reused = set(), 0
        for i in range(60):
            source = "x = 1\n" * 30 + "\n" * (i % 3) + "x = 2\n" * 30 + "s.take()\n"
            code = compile(source, "<same>", "exec")
            reused += id(code) in seen
            seen.add(id(code))
            exec(code, {"s": s})
            del code
        self.assertGreater(reused, 5)
        self.check(s, 60, 2)

    def test_frames_are_kept_once(self):
        """The same place is one frame, in whatever thread and however often; another line is another one."""
        def work(times):
            for _ in range(times):
                raw = my_buffer(); freed.probe_capture(raw, len(raw))

        work(1)
        before = held.probe_frames()
        for _ in range(3):
            work(5)
        after_loops = held.probe_frames()
        self.assertEqual(after_loops - before, 1)  # the line of this loop
        raw = my_buffer()
        held.probe_capture(raw, len(raw))
        self.assertEqual(held.probe_frames() - after_loops, 1)

    def test_destructors_when_a_thread_ends(self):
        s = Snapshots()

        class Last:
            def __del__(self):
                s.take()

        local = threading.local()

        def work():
            local.last = Last()

        t = threading.Thread(target=work)
        t.start()
        t.join()
        self.check(s, 1, 1)


class Processes(unittest.TestCase):
    def run_me(self, what, timeout=60):
        return subprocess.run(ME + [what], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)

    def test_no_deadlock(self):
        done = self.run_me("--lock")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_deadlock_is_one(self):
        """Who takes the interpreter's lock there hangs; or the test above shows nothing."""
        with self.assertRaises(subprocess.TimeoutExpired):
            self.run_me("--lock-gil", timeout=1.5)

    def test_an_interpreter_that_ends(self):
        for _ in range(3):
            done = self.run_me("--end")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn(b"ended", done.stdout)

    def test_subinterpreters(self):
        """Up to 3.11 the frames are those of who runs the other interpreter (stack_python.h)."""
        done = self.run_me("--sub")
        self.assertEqual(done.returncode, 0, done.stdout)
        seen = [b"inner", b"<module>"] if sys.version_info >= (3, 12) else [b"caller", b"sub"]
        self.assertEqual(done.stdout.split()[:2], seen)

    def test_a_python_that_is_loaded_later(self):
        library = os.path.join(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("INSTSONAME") or "-")
        if not os.path.isfile(library) or ".so" not in library:
            self.skipTest("this Python is no shared library")
        environment = dict(os.environ, PYTHONHOME="%s:%s" % (sys.base_prefix, sys.base_exec_prefix))
        done = subprocess.run([EMBED, library], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.split(), [b"0", b"1", b"0", b"1", b"0"])


class Offsets(unittest.TestCase):
    def test_offsets_are_those_of_the_headers(self):
        include = sysconfig.get_path("include")
        if not os.path.isdir(os.path.join(include, "internal")) or not shutil.which(os.environ.get("CC", "cc")):
            self.skipTest("no internal headers of this Python, or no compiler")
        text = ctypes.create_string_buffer(1 << 12)
        runtime = ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime")
        self.assertEqual(held.probe_layout(ctypes.byref(runtime), sys.version_info.minor, text, ctypes.c_size_t(len(text))), 0)
        computed = subprocess.run([OFFSETS, include], stdout=subprocess.PIPE, check=True).stdout.decode()
        self.assertGreater(len(computed.split("\n")), 20)
        self.assertEqual(sorted(text.value.decode().split("\n")), sorted(computed.split("\n")))

    def test_what_is_not_known_is_refused(self):
        published = (ctypes.c_char * 1024)()
        text = ctypes.create_string_buffer(1 << 12)
        for minor in 8, 13, 14, 15, 16:
            self.assertEqual(held.probe_layout(published, minor, text, ctypes.c_size_t(len(text))), -1)

    @unittest.skipIf(sys.version_info < (3, 13), "this version publishes nothing")
    def test_what_is_published_and_makes_no_sense_is_refused(self):
        text = ctypes.create_string_buffer(1 << 12)
        runtime = ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime")
        minor = sys.version_info.minor

        def read(index=None, value=0):
            published = (ctypes.c_uint64 * 96).from_buffer_copy(ctypes.string_at(ctypes.byref(runtime), 96 * 8))
            if index is not None:
                published[index] = value
            return held.probe_layout(published, minor, text, ctypes.c_size_t(len(text)))

        self.assertEqual(read(), 0)
        self.assertEqual(read(0), -1)  # the cookie
        self.assertEqual(read(1, 0x030C00F0), -1)  # the version
        self.assertEqual(read(2, 1), -1)  # without the interpreter's lock
        self.assertEqual(read(4), -1)
        self.assertEqual(read(4, 1 << 40), -1)


def lock_in_two_orders(ensure):
    """What PyTorch's backend does: one thread has its lock and not the interpreter's, another the reverse."""
    result = []

    def without():
        raw = my_buffer()
        result.append(freed.probe_under_lock(ensure, raw, len(raw)))
        result.append(frames_in(raw))

    t = threading.Thread(target=without)
    t.start()
    held.probe_wait_for_lock()
    t.join()
    assert result[0] >= 3, result
    assert [f[1] for f in result[1]][:2] == ["without", "run"], result


def end_while_capturing():
    class Last:
        def __del__(self, take=Snapshots().take):
            take()

    def deep(n):
        if n:
            return deep(n - 1)
        freed.probe_capture_forever()

    for i in range(3):
        threading.Thread(target=deep, args=(i * 5,), daemon=True).start()
    atexit.register(Snapshots().take)
    sys.modules["last"] = Last()
    print("ended", flush=True)


def sub():
    if sys.version_info >= (3, 13):
        import _interpreters as interpreters
        new = interpreters.create("legacy")  # or ctypes could not be imported in it
    else:
        import _xxsubinterpreters as interpreters
        new = interpreters.create(isolated=False)
    code = """
import ctypes, sys
lib = ctypes.PyDLL(%r)
lib.probe_capture.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
def inner():
    raw = ctypes.create_string_buffer(1 << 12)
    lib.probe_capture(raw, len(raw))
    print(*raw.value.decode().split("\\1")[1:5:3], flush=True)
inner()
""" % PROBE

    def caller():
        (interpreters.exec if hasattr(interpreters, "exec") else interpreters.run_string)(new, code)

    caller()
    interpreters.destroy(new)


def down(n, what):
    return down(n - 1, what) if n else what()


def bench():
    """What ten Python frames, seen before, cost on top of native ones."""
    costs = [float(subprocess.run(ME + [what], stdout=subprocess.PIPE, check=True).stdout) for what in ("--native-cost", "--cost")]
    print("native frames %.0f ns, Python frames besides %.0f ns" % (costs[0], costs[1] - costs[0]))
    assert costs[1] - costs[0] <= PYTHON_LIMIT_NS, "more than %d ns" % PYTHON_LIMIT_NS


def main():
    global PROBE, EMBED, OFFSETS, ME
    minor, PROBE, EMBED, OFFSETS = int(sys.argv[1]), *sys.argv[2:5]
    if sys.version_info[:2] != (3, minor):
        command = find_interpreter(minor)
        if command is None:
            print("no Python 3.%d is installed" % minor)
            sys.exit(77)
        os.environ["CLEAVE_PYTHON_3_%d" % minor] = shlex.join(command)
        os.execvp(command[0], command + sys.argv)
    load({"--native-cost": 0, "--cost": 10}.get(sys.argv[-1], PYTHON_MAX))
    command = shlex.split(os.environ.get("CLEAVE_PYTHON_3_%d" % minor, "")) or [sys.executable]
    ME = command + sys.argv[:5]
    rest = sys.argv[5:]
    if rest == ["--lock"]:
        lock_in_two_orders(None)
    elif rest == ["--lock-gil"]:
        lock_in_two_orders(ctypes.cast(ctypes.pythonapi.PyGILState_Ensure, ctypes.c_void_p))
    elif rest == ["--sub"]:
        sub()
    elif rest == ["--end"]:
        end_while_capturing()
    elif rest in (["--cost"], ["--native-cost"]):
        print(down(8, lambda: min(held.probe_cost(10000) for _ in range(20))))
    elif rest == ["--bench"]:
        bench()
    else:
        unittest.main(argv=[sys.argv[0]] + rest)


if __name__ == "__main__":
    main()
