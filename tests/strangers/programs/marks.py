# SPDX-License-Identifier: Apache-2.0
"""What the programs here say to the script that started them: when their work begins, and what came out."""
import json
import os
import pathlib
import threading
import time


def expect(condition, what):
    if not condition:
        raise SystemExit(f"WRONG {what}")


def close(got, wanted, what, tolerance=1e-5):
    expect(abs(got - wanted) <= tolerance * max(abs(wanted), 1e-6), f"{what}: {got!r} after {wanted!r} before")


def begin():
    """The program is warm. The neighbour begins now."""
    print("BEGUN", flush=True)
    if path := os.environ.get("CTXB_NEIGHBOUR_BEGIN"):
        pathlib.Path(path).write_text("begun\n")


def finish(**values):
    print("RESULT " + json.dumps(values), flush=True)


SIZES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20, "256 MiB": 256 << 20,
         "1 GiB": 1 << 30}


def times_by_size(kind, take, give, seconds):
    """Takes and gives back memory of each size until the time is over. Returns the medians of both, in microseconds."""
    times = {}
    for name, size in SIZES.items():
        taken, given, begun = [], [], time.monotonic()
        while len(taken) < 5 or (time.monotonic() - begun < seconds / len(SIZES) and len(taken) < 10000):
            start = time.perf_counter_ns()
            thing = take(size)
            between = time.perf_counter_ns()
            give(thing)
            given.append(time.perf_counter_ns() - between)
            taken.append(between - start)
            del thing
        times[f"{kind}, {name}"] = [sorted(one)[len(one) // 2] / 1000 for one in (taken, given)]
    return times


class Rounds:
    """Counts rounds until the time is over. Its rate is that of the median of ten parts of the time, so that one
    interruption does not decide it."""

    def __init__(self, seconds, parts=10):
        self.seconds, self.parts, self.count = seconds, parts, 0
        self.rates = []

    def __iter__(self):
        begun = mark = time.monotonic()
        counted = 0
        while True:
            yield self.count
            self.count += 1
            now = time.monotonic()
            if now - mark >= self.seconds / self.parts:
                self.rates.append((self.count - counted) / (now - mark))
                mark, counted = now, self.count
            if now - begun >= self.seconds:
                return

    @property
    def rate(self):
        return sorted(self.rates)[len(self.rates) // 2] if self.rates else 0


def side_by_side(works, seconds):
    """Calls each function of `works` in rounds, on a thread of its own. Returns its rounds by its name. Ends the
    program if a function fails."""
    rounds, failures = {name: Rounds(seconds) for name in works}, []

    def run(name):
        try:
            for _ in rounds[name]:
                works[name]()
        except BaseException as error:  # pylint: disable=broad-except
            failures.append(f"{name}: {error}")

    threads = [threading.Thread(target=run, args=(name,)) for name in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not failures, "; ".join(failures))
    return rounds
