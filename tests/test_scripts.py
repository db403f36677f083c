# SPDX-License-Identifier: MIT
"""The programs behind scripts/test, scripts/demo and scripts/gpu: a sum that hides a failure, or a table that hides a
policy which did not complete, would be worse than none. Usage: test_scripts.py FOLDER_OF_PROGRAMS"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

LIB = sys.argv.pop(1)


def call(program, *arguments):
    done = subprocess.run([sys.executable, os.path.join(LIB, program), *arguments], capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stdout.rstrip("\n").split("\n"), done.stderr


class Scratch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


class Summary(Scratch):
    def log(self, name, *results):
        return self.write(name, "".join(
            json.dumps({"name": f"t{i}", "result": result, "duration": 0.5,
                        "stdout": "Running suite(s): x\n100%: Checks: 3, Failures: 0, Errors: 0\n"}) + "\n"
            for i, result in enumerate(results)))

    def summary(self, *lines):
        status, output, _ = call("test_summary.py", self.write("results", "".join(line + "\n" for line in lines)))
        return status, output

    def test_adds_up_runs(self):
        status, output = self.summary("build\t" + self.log("a", "OK", "SKIP"), "asan\t" + self.log("b", "OK"))
        self.assertEqual((status, output[-1]), (0, "2 passed, 0 failed, 1 skipped"))
        self.assertIn("6 checks", output[1])

    def test_every_other_result_is_a_failure(self):
        for result in ("FAIL", "TIMEOUT", "ERROR", "INTERRUPT", "UNEXPECTEDPASS", "a new one"):
            status, output = self.summary("build\t" + self.log("a", "OK", result))
            self.assertEqual((status, output[-1]), (1, "1 passed, 1 failed, 0 skipped"), result)
            self.assertIn(f"FAILED build: t1: {result}", output)

    def test_a_run_without_a_log_is_a_failure(self):
        for source in ("!does not build", "/nonexistent/log", self.write("broken", "{")):
            status, output = self.summary("build\t" + self.log("a", "OK"), "asan\t" + source)
            self.assertEqual((status, output[-1]), (1, "1 passed, 1 failed, 0 skipped"), source)

    def test_no_test_at_all_is_a_failure(self):
        for lines in ((), ("build\t" + self.log("a"),), ("build\t" + self.log("a", "SKIP"),), ("asan\t?cannot run",)):
            self.assertEqual(self.summary(*lines)[0], 1, lines)


class Table(Scratch):
    def policy(self, name, **changes):
        return {"policy": name, "completed": True, "failed_at_event": None, "peak_reserved_bytes": 8 << 30,
                "reserved_over_live": 2.0, "driver_calls": {"cuMemCreate": 1500, "cuMemMap": 1}, "fit_bytes": 5 << 30,
                "fit_over_live": 1.25, "modelled_driver_s": 0.25, **changes}

    def table(self, *policies):
        document = {"trace": {"file": "/some where/case.clv", "peak_live_bytes": 4 << 30}, "policies": list(policies)}
        return call("demo_table.py", self.write("case.json", json.dumps(document)))

    def test_rows_and_sentence(self):
        status, output, errors = self.table(
            self.policy("torch:recorded"),
            self.policy("cleave", peak_reserved_bytes=(4 << 30) + (1 << 28), reserved_over_live=1.0625))
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual(output[2].split(), "case torch:recorded 4.00 GiB 8.00 GiB 2.000 5.00 GiB 1.250 1,501 250.0 ms".split())
        self.assertEqual(output[-1], "case: at most 4.00 GiB were live at once; for that, PyTorch with the recorded settings "
                         "held 8.00 GiB (2.00 times as much) and Cleave held 4.25 GiB (1.062 times as much); the smallest "
                         "device on which each completes has 5.00 GiB and 5.00 GiB.")

    def test_the_best_setting_is_the_one_that_reserved_least(self):
        _, output, _ = self.table(
            self.policy("torch:recorded"), self.policy("torch", peak_reserved_bytes=7 << 30),
            self.policy("torch:expandable_segments:True", peak_reserved_bytes=6 << 30),
            self.policy("torch:max_split_size_mb:20", peak_reserved_bytes=5 << 30, completed=False, failed_at_event=3),
            self.policy("cleave"))
        self.assertIn("PyTorch with the best setting tried (torch:expandable_segments:True) held 6.00 GiB", output[-1])

    def test_a_policy_that_fails_shows_no_results(self):
        status, output, _ = self.table(self.policy("torch:recorded", completed=False, failed_at_event=17),
                                       self.policy("cleave"))
        self.assertEqual(status, 0)
        self.assertIn("failed at event 17", output[2])
        self.assertNotIn("8.00 GiB", output[2])
        self.assertIn("recorded settings did not complete", output[-1])
        self.assertNotIn("smallest device", output[-1])

    def test_cleave_must_complete(self):
        self.assertEqual(self.table(self.policy("cleave", completed=False, failed_at_event=1))[0], 1)
        self.assertEqual(self.table(self.policy("torch"))[0], 1)


class DriverTable(Scratch):
    def put(self, name, held, completed=True):
        self.write(name, json.dumps({"policies": [{
            "completed": completed, "peak_reserved_bytes": held << 20, "driver_calls": {"cuMemCreate": 12},
            "modelled_driver_s": 0.001, "wall_s": 0.002}]}))

    def test_both_devices(self):
        self.put("a.sim.json", 100)
        self.put("a.cuda.json", 110)
        status, out, _ = call("driver_table.py", self.folder.name)
        self.assertEqual(status, 0)
        self.assertEqual(len(out), 3)
        self.assertIn("110", out[2])

    def test_what_is_wrong(self):
        status, _, err = call("driver_table.py", self.folder.name)
        self.assertEqual(status, 1)
        self.assertIn("no replays", err)
        self.put("a.cuda.json", 100)
        self.assertEqual(call("driver_table.py", self.folder.name)[0], 1)  # nothing simulated
        self.put("a.sim.json", 100)
        self.assertEqual(call("driver_table.py", self.folder.name)[0], 0)
        self.put("a.cuda.json", 130)
        self.assertEqual(call("driver_table.py", self.folder.name)[0], 1)
        self.put("a.cuda.json", 100, completed=False)
        status, out, _ = call("driver_table.py", self.folder.name)
        self.assertEqual(status, 1)
        self.assertIn("not completed", "\n".join(out))
        self.write("a.cuda.json", "")
        self.assertEqual(call("driver_table.py", self.folder.name)[0], 1)


if __name__ == "__main__":
    unittest.main()
