# SPDX-License-Identifier: MIT
"""Parts that measure Cleave beside PyTorch's native allocator, in the same run."""
import concurrent.futures
import http.client
import json
import random
import os
import statistics
import time

from harness import Failed, Skipped, last_json, race

BACKEND = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}


def median_ratio(rows, name, over):
    return statistics.median(row[name] for row in rows) / statistics.median(row[name] for row in over)


def graphs(part):
    """Sixty graphs of a decode step with growing batch."""
    command = [part.setup.python, part.work("graphs.py")]
    labels = ("native", "cleave")
    found = {}
    with race(part, {"native": (command, "plain", None), "cleave": (command, "cleave", None)}) as racers:
        for label in labels:
            found[label] = racers[label].ask("capture")
        for racer in racers.values():
            racer.ask("time") # warm
        times = {label: [] for label in labels}
        for number in range(30 if part.setup.long else 12):
            for label in labels if number % 2 else reversed(labels):
                times[label].append(racers[label].ask("time"))
        for label in labels:
            found[label] |= {name: statistics.median(row[name] for row in times[label]) for name in times[label][0]}
            for command in ("turns", "overlap", "pairs"):
                found[label][command] = racers[label].ask(command)
            found[label]["later_mib"] = racers[label].ask("memory")["mib"]
    part.note(**found)
    native, cleave = found["native"], found["cleave"]
    part.served(racers["cleave"].ended, 60)
    memory = (max(cleave["captured_mib"], cleave["replayed_mib"]), native["replayed_mib"])
    part.check("memory at most 5 % over native", memory[0] <= 1.05 * memory[1], f"{memory[0]:.0f} and {memory[1]:.0f} MiB")
    ratios = {}
    for size in ("big", "small"):
        host = median_ratio(times["cleave"], f"host_{size}_us", times["native"])
        device = median_ratio(times["cleave"], f"device_{size}_us", times["native"])
        ratios[size] = (host, device)
    part.note(host_ratio={size: ratio[0] for size, ratio in ratios.items()},
              device_ratio={size: ratio[1] for size, ratio in ratios.items()})
    cost = part.ran("cost of a launch", [part.compile("launch_cost.c", "launch_cost")]).result
    part.check("the launch is Cleave's", cost.get("hooked"))
    part.note(launch_cost=cost)
    # Two native processes differ by up to 6 %; in one process the driver's own function is the measure.
    more = cost["launch_us"] / cost["driver_us"] if cost else float("inf")
    part.check("a launch takes at most 2 % longer than the driver's", more <= 1.02, f"{more:.3f}")
    part.check("native replays are right in turns", native["turns"]["wrong"] == 0, native["turns"])
    for command, what in (("turns", "in turns"), ("overlap", "on two streams without a wait"), ("pairs", "in pairs without a wait")):
        part.check(f"replays are right {what}", cleave[command]["wrong"] == 0, cleave[command])
    part.show(f"{memory[0]:.0f} MiB (native {memory[1]:.0f}), launch {cleave['host_big_us']:.2f}/{cleave['host_small_us']:.2f} us "
              f"(native {native['host_big_us']:.2f}/{native['host_small_us']:.2f}, x{ratios['big'][0]:.3f}/{ratios['small'][0]:.3f}), "
              f"in one process {cost.get('launch_us', 0):.2f} (driver {cost.get('driver_us', 0):.2f}, x{more:.3f}), "
              f"device x{ratios['big'][1]:.3f}/{ratios['small'][1]:.3f}; wrong replays without a wait: "
              f"{cleave['overlap']['wrong'] + cleave['pairs']['wrong']} "
              f"(native {native['overlap']['wrong'] + native['pairs']['wrong']})")


def bench(part):
    """What an allocation and its free cost."""
    rounds = 30 if part.setup.long else 12
    command = [part.setup.python, part.work("bench_torch.py")]
    entries = {"native": (command, "plain", None), "driver": (command, "plain", BACKEND), "cleave": (command, "cleave", None)}
    torch_ns = measured(part, entries, rounds)
    medians = {label: statistics.median(row["pair_ns"] for row in rows) for label, rows in torch_ns.items()}
    part.note(torch_pair_ns=medians)
    part.show("torch.empty " + ", ".join(f"{label} {value:.0f}" for label, value in medians.items()) + " ns")
    program = part.compile("bench_pairs.c", "bench_pairs")
    pairs = measured(part, {"driver": ([program], "plain", None), "cleave": ([program], "cleave", None)}, rounds)
    sizes = list(pairs["driver"][0])
    found = {size: {label: statistics.median(row[size] for row in rows) for label, rows in pairs.items()} for size in sizes}
    part.note(pair_ns=found)
    part.show("pairs " + ", ".join(f"{size} B {one['cleave']:.0f} (driver {one['driver']:.0f})" for size, one in found.items()))


def record(part):
    """What recording costs, and that what it wrote is what the program did."""
    rounds = 12 if part.setup.long else 6
    program = [part.setup.python, part.work("bench_torch.py"), "--depth", 6, "--record", part.setup.scratch]
    rows = measured(part, {"native": (program, "plain", None), "cleave": (program, "cleave", None)}, rounds, "record")
    added = {label: {stacks: statistics.median(row[stacks] for row in taken) for stacks in taken[0]} for label, taken in rows.items()}
    part.note(added_ns=added, rows=rows)
    for stacks, native in added["native"].items():
        cleave = added["cleave"][stacks]
        # Without stacks both read a clock and fill a record, no more.
        times, words = (1, "no more than") if stacks == "off" else (2, "at most half of")
        part.check(f"stacks {stacks}: {words} what PyTorch's history adds", cleave * times <= native, f"{cleave:.0f} and {native:.0f} ns")
        part.show(f"with stacks {stacks} a recording adds {cleave:.0f} ns a pair (PyTorch's history {native:.0f}, "
                  f"x{cleave / native:.2f})")
    files = {stacks: os.path.join(part.setup.scratch, f"{stacks}.clv") for stacks in added["cleave"]}
    files["observed"] = os.path.join(part.setup.scratch, "observed.clv")
    observed = [part.setup.python, part.work("bench_torch.py")]
    measured(part, {"observed": (observed, f"observe:{files['observed']}", {"CLEAVE_CONF": "stacks:off"} | BACKEND)}, 1)
    for label, path in files.items():
        done = part.run(f"report of {label}", [part.setup.cleave, "report", path, "--json"], "plain", timeout=120)
        found = last_document(done.out)
        part.check(f"{label}: the report is made", done.status == 0 and found, done.why())
        events = sum(device["events"] for device in (found or {}).get("devices", ()))
        part.note(**{f"report_{label}": {"bytes": os.path.getsize(path) if os.path.exists(path) else 0, "events": events}})
        part.check(f"{label}: every request and free is in it", events >= 2 * (20000 if label == "observed" else 124000),
                   f"{events} events")
        if label in ("python", "all"):
            part.check(f"{label}: the line that allocates is named", "bench_torch.py" in done.out)


def last_document(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def measured(part, entries, rounds, command="go"):
    rows = {label: [] for label in entries}
    with race(part, entries) as racers:
        order = list(racers)
        for _ in range(rounds):
            for label in order:
                rows[label].append(racers[label].ask(command))
            order = order[1:] + order[:1]
    for label, racer in racers.items():
        done = racer.ended
        part.check(f"{label}: the library is {'' if entries[label][1] != 'plain' else 'not '}loaded",
                   bool(done.result.get("preloaded")) == (entries[label][1] != "plain"))
        if label == "cleave":
            part.served(done, 1000 * rounds)
    return rows


GROUP = 16
WORDS = "a batch of requests waits until the model has answered what came before it and memory is free again".split()


def requests_of(group):
    """The same for every server: prompts of very different lengths, answers too."""
    rng = random.Random(group)
    for index in range(GROUP):
        yield {"group": group, "index": index, "prompt": " ".join(rng.choices(WORDS, k=rng.randint(20, 900))),
               "tokens": rng.randint(24, 64)}


def call(port, method, path, body=None, timeout=120):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise Failed(f"the server answered {answer.status}: {text[:200]}")
        return json.loads(text)
    except (OSError, http.client.HTTPException) as error:
        raise Failed(f"the server does not answer: {type(error).__name__}: {error}") from error
    finally:
        connection.close()


def slice_of(port, groups):
    """Sends the requests of the groups, 32 at a time, and returns the answers and the seconds that it took."""
    asked = [request for group in groups for request in requests_of(group)]
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(2 * GROUP) as clients:
        answers = list(clients.map(lambda request: call(port, "POST", "/generate", request)["text"], asked))
    return answers, time.monotonic() - begin


def server(part):
    """An HTTP server under concurrent requests. Both servers run, and get the same requests in turn, so that neither has a
    better machine; while one works the other waits."""
    wanted = 120 if part.setup.long else 60
    command = [part.setup.python, part.work("server.py"), "--group", GROUP]
    seconds = {"native": 0.0, "cleave": 0.0}
    ratios, tokens, different, compared = [], 0, 0, 0
    with race(part, {"native": (command, "plain", None), "cleave": (command, "cleave", None)}) as racers:
        ports = {label: int(racer.ready.group(1)) for label, racer in racers.items()}
        for port in ports.values():
            slice_of(port, range(1000, 1003))
        # Does a server agree with itself? Otherwise that the two differ says nothing.
        unsteady = {}
        for label, port in ports.items():
            once, again = (slice_of(port, range(2000, 2003))[0] for _ in range(2))
            unsteady[label] = sum(a != b for a, b in zip(once, again))
        first = 0
        # Leaves room for one more slice, and to look at the servers' statistics.
        while min(seconds.values()) < wanted and part.left() > 30:
            groups = range(first, first + 2)
            first += 2
            order = list(ports) if len(ratios) % 2 else list(ports)[::-1]
            answers, took = {}, {}
            for label in order:
                answers[label], took[label] = slice_of(ports[label], groups)
                seconds[label] += took[label]
            ratios.append(took["native"] / took["cleave"])
            compared += len(answers["native"])
            different += sum(a != b for a, b in zip(answers["native"], answers["cleave"]))
            tokens += sum(request["tokens"] for group in groups for request in requests_of(group))
        stats = {label: call(port, "GET", "/stats") for label, port in ports.items()}
        for port in ports.values():
            call(port, "POST", "/stop", {})
    if not ratios:
        raise Failed("there was no time for a single slice")
    rate = {label: tokens / value for label, value in seconds.items()}
    ratio = rate["cleave"] / rate["native"]
    part.note(seconds=seconds, tokens_per_s=rate, ratio=ratio, slice_ratios=ratios, requests=compared, stats=stats)
    part.check("the library is loaded in one server", stats["cleave"]["preloaded"] and not stats["native"]["preloaded"])
    part.served(racers["cleave"].ended, tokens)
    part.note(unsteady=unsteady)
    part.check("native gives the same answers twice", unsteady["native"] == 0, unsteady)
    part.check("the same answers", compared and different == 0, f"{different} of {compared} differ")
    # The machine is not equally fast from one moment to the next: a few slow slices would decide the sum.
    middle = statistics.median(ratios)
    part.check("tokens/s at least 0.98 of native, in the median of slices", middle >= 0.98, f"{middle:.3f}")
    part.check("served long enough", min(seconds.values()) >= wanted, f"{min(seconds.values()):.0f} of {wanted} s")
    part.show(f"{compared} answers, {different} differ; {rate['cleave']:.0f} tokens/s, native {rate['native']:.0f}, "
              f"x{ratio:.3f} (median of {len(ratios)} slices x{middle:.3f}); peak reserved "
              f"{stats['cleave']['peak_reserved_mib']} MiB, native {stats['native']['peak_reserved_mib']}")


def moe(part):
    """Weights of Kimi-K3's sizes converted on a full GPU. Under Cleave the program sets max_split_size_mb:20, too."""
    if not part.setup.moe:
        raise Skipped("needs --moe-convert FILE")

    def convert(label, how, mode, *options):
        layers = 65 if mode == "stack" else 66
        # What is timed is timed on one processor, since they are not equally fast.
        command = [] if "--check" in options else ["taskset", "-c", max(os.sched_getaffinity(0))]
        command += [part.setup.python] + ([part.work("moe_split.py")] if how == "cleave" else [])
        done = part.ran(f"{mode}, {label}", command + [part.setup.moe, "--layers", layers, "--mode", mode, *options], how,
                        timeout=90)
        found = last_json(done.out, '{"result"') or {}
        part.check(f"{mode}, {label}: finishes", found.get("result") == "ok", found.get("result", done.why()))
        found["failures"] = done.served["failures"]
        if how == "cleave":
            part.check(f"{mode}, {label}: the stream-ordered backend", done.result.get("backend") == "cudaMallocAsync")
        return found

    for number, mode in enumerate(("prealloc", "reorder", "stack")):
        part.note(**{f"{mode}_full": (full := convert("8 MiB of slack", "cleave", mode, "--slack-mib", 8, "--check"))})
        part.check(f"{mode}, 8 MiB of slack: no request failed", full.get("retries") == full["failures"] == 0,
                   f"{full.get('retries')} retries, {full['failures']} failures")
        times = {"plain": [], "cleave": []}
        for again in range(2 if part.setup.long else 1):
            order = ("plain", "cleave") if (number + again) % 2 else ("cleave", "plain")
            for how in order:
                found = convert("native, 2 GiB of slack" if how == "plain" else "2 GiB of slack", how, mode, "--slack-mib", 2048)
                part.note(**{f"{mode}_{how}_{again}": found})
                if found.get("convert_s"):
                    times[how].append(found["convert_s"])
        if not times["plain"] or not times["cleave"]:
            raise Failed(f"{mode}: no time to compare")
        best = {how: min(values) for how, values in times.items()}
        part.check(f"{mode}: converts in at most 1.05 of native's time", best["cleave"] <= 1.05 * best["plain"],
                   f"{best['cleave']:.2f} and {best['plain']:.2f} s")
        part.show(f"{mode} {full.get('result')}, {best['cleave']:.2f} s (native {best['plain']:.2f}, "
                  f"x{best['cleave'] / best['plain']:.3f})")
