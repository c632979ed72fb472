#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs ctxb-validate on every plug-in library of a build or a bundle, and compares with the table
below: each misbehaving plug-in has to fail the test that names its fault, and each good one has to
pass at strictness 10. Each test that ctxb-validate --list shows needs a plug-in that fails it.

    bin/validate_all.py [--driver NAME] [--quick] [--jobs N] [--only TEXT] [--markdown FILE] [--json FILE]

--quick runs only the test of each row and a few good plug-ins. It takes seconds. Plug-ins that this
machine cannot run (they need a GPU, for example) are counted, with the reason; the tests of their
files run all the same. Status 0: all is as the table says; 1: something is not; 2: wrong arguments.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Misbehaving plug-ins of the library "behaviours": the test that has to fail, and who fails it.
BEHAVIOURS = {
    "life.create": "create_refuses create_throws create_crooked",
    "life.activate": "activate_fails activate_fails_silently activate_throws "
                     "activate_fails_with_memory unknown_kernel unknown_module foreign_release "
                     "garbage promising activate_launches_and_fails sixth_argument wrong_line "
                     "undefined bad_part",
    "life.process": "process_fails never_returns every_second_fails process_throws always_again "
                    "unknown_soft launches_and_fails launches_and_throws faults faults_later",
    "life.reactivate": "works_once",
    "life.instances": "shows_neighbours",
    "context.balance": "pushes_twice pops sets_none creates_context",
    "context.own_contexts": "pushes_in_create creates_context",
    "context.resets": "resets",
    "context.settings": "sets_limit",
    "context.device": "uses_device_0",
    "life.calls": "loads_when_new",
    "life.strikes": "other_sizes",
    "process.guard_bands": "writes_beyond writes_before",
    "process.output_written": "writes_nothing writes_half reads_output rests "
                              "trusts_the_buffer",
    "process.inputs_unchanged": "changes_input",
    "process.row_pitch": "ignores_pitch scratch packed",
    "process.sizes": "refuses_odd_sizes",
    "process.deterministic": "is_random",
    "process.discontinuity": "remembers",
    "process.no_wait": "synchronises synchronises_blindly spins",
    "process.no_allocation": "process_allocates allocates_async",
    "process.job_stream": "own_stream",
    "process.host_calls": "earlier_kernel invented_kernel null_stream too_many_threads "
                          "wrong_argument upload_too_much packed_too_short packed_shifted "
                          "unknown_flag too_many_together absurd_shared",
    "process.formats": "floats_only",
    "process.optional_inputs": "needs_its_mask",
    "process.in_place": "works_twice",
    "process.odd_values": "trusts_its_input",
    "image.tiles": "shows_seams",
    "audio.events": "dislikes_changes",
    "realtime.heap": "uses_heap",
    "realtime.locks": "uses_lock",
    "realtime.waits": "sleeps",
    "parameters.extremes": "stumbles",
    "parameters.random": "stumbles_in_between",
    "state.round_trip": "loads_nothing",
    "state.garbage": "trusts_its_state loads_before_looking",
    "state.truncated": "loads_any_length",
    "memory.given_back": "leaks megabyte takes_both_ways",
    "memory.out_of_memory": "hopes_for_memory",
    "memory.steady": "leaves_a_stream hides_memory",
    "memory.driver_failures": "gives_up",
    "loss.no_calls": "calls_after_loss",
    "loss.reactivation": "is_offended",
    "threads.other": "one_thread",
    "threads.at_once": "works_alone",
    "threads.parameters": "insists",
    "threads.ended": "leaves_a_thread",
}

# Those of other libraries: (library, plug-in or None, test, environment).
OTHERS = [
    ("broken_text", None, "static.library", {}),
    ("broken_no_entry", None, "static.entry", {}),
    ("broken_missing_library", None, "static.needed_libraries", {}),
    ("broken_text_relocation", None, "static.text_relocations", {}),
    ("broken_executable_stack", None, "static.executable_stack", {}),
    ("broken_relative_run_path", None, "static.run_path", {}),
    ("broken_damaged_image", None, "static.images", {}),
    ("behaviours", None, "static.exports", {}),
    ("broken_no_ptx", None, "static.architectures", {}),
    ("broken_pushes_at_load", None, "load.context", {}),
    ("broken_retains_at_load", None, "load.no_cuda", {}),
    ("broken_stays_loaded", None, "load.again", {}),
    ("broken_init_once", None, "load.answers", {}),
    ("broken_any_factory", None, "load.answers", {}),
    ("broken_needs_driver", None, "load.cuda_libraries", {}),
    ("broken_stale_manifest", None, "load.manifest", {}),
    ("audio_probes", "late_bypass", "audio.latency", {}),
    ("audio_probes", "absurd_latency", "audio.latency", {}),
    ("audio_probes", "early_output", "audio.latency", {}),
    ("audio_probes", "fails_sometimes", "life.process", {}),
    ("audio_probes", "block_dependent", "audio.block_size", {}),
    ("audio_probes", "misplaced", "audio.block_size", {}),
    ("images", "absurd", "parameters.extremes", {}),
    ("images", "asks_frames", "parameters.extremes", {}),
    ("parameters", "parameters", "process.output_written", {}),
    ("linking", "linking", "process.row_pitch", {}),
    ("parameters_upgraded", "parameters", "process.output_written", {}),
    ("typed", None, "process.row_pitch", {}),
    ("wishes", "scratch", "process.row_pitch", {}),
    ("both", "with_driver", "process.row_pitch", {}),
    ("both", "with_runtime", "process.row_pitch", {}),
    ("memory_faults", None, "parameters.extremes", {}),
    ("hostile", None, "parameters.extremes", {}),
    ("hostile_sound", None, "audio.events", {}),
    ("deaths", None, "parameters.random", {}),
    ("crashes", None, "life.process", {"CTXB_TEST_CRASH": "process:segv"}),
    ("resetting_static", None, "context.resets", {}),
    ("resetting_shared", None, "context.resets", {}),
]
# Harm that begins when they are loaded.
OTHERS += [("scan_" + name, None, "load.loads", {}) for name in (
    "crashes", "exits", "hangs", "endless", "forges", "kills_group", "kills_parent",
    "stops_parent", "leaves_child")]
OTHERS += [(f"broken_{fault}", None, "load.loads", {}) for fault in (
    "abi_major", "entry_size", "entry_functions", "init_fails", "init_throws", "no_factory",
    "factory_functions", "no_plugins", "bad_descriptor", "missing_symbol")]
OTHERS += [("answers", "answers", test, {"CTXB_TEST_ANSWER": answer}) for test, answer in (
    ("parameters.text", "to_text has_no_end"), ("parameters.text", "from_text is_nan"),
    ("life.strikes", "get_frames turns_round"), ("context.own_contexts", "latency pushes"))]
OTHERS += [("ports", None, "load.loads", {"CTXB_TEST_PORT_FAULT": fault}) for fault in (
    "no_output", "many_inputs", "null_inputs", "short_size")]
# Code that is no plug-in.
OTHERS += [(name, None, "static.entry", {}) for name in (
    "careless", "callback", "foreign_attacks", "attacks_dlsym", "attacks_proc_address",
    "attacks_linked", "attacks_worker", "attacks_callbacks", "attacks_runtime_static",
    "attacks_runtime_shared", "attacks_by_base", "attacks_by_link_map", "attacks_by_namespace",
    "attacks_by_needed", "attacks_deepbind", "attacks_late", "attacks_needed", "runtime_launch",
    "tool_named", "tool_interposer", "tool_injected", "nvtx_injection")]

# Good ones among the test plug-ins.
SOUND = [("behaviours", plugin) for plugin in (
    "affine", "bias", "bypass", "again_once", "threads", "asks", "one_at_a_time",
    "native_context", "describes", "plain", "linked", "fills_a_cache")]
SOUND += [("unloadable", None), ("mixer", None), ("audio_probes", "values"),
          ("audio_probes", "scale"), ("audio_probes", "difference"), ("images", "per_pixel"),
          ("images", "needs_all"), ("pictures", None), ("mixer_twin", None),
          ("interop", None), ("short_of_memory", None)]
# Plug-ins with one fault. No other test may fail, because its text would name a false cause.
ONE_FAULT = [("behaviours", "remembers", "process.discontinuity"),
             ("behaviours", "is_random", "process.deterministic"),
             ("audio_probes", "forgets_discontinuity", "process.discontinuity"),
             ("audio_probes", "early_output", "audio.latency")]
# What good test plug-ins are excused from: their files export what the tests look at.
EXCUSED = {"static.exports"}
# Libraries without a row, and why.
LEFT_OUT = {
    "arrival": "it is no plug-in",
    "arrival_slow": "it is no plug-in",
    "async_threads": "it is no plug-in",
    "avutil_device": "it is no plug-in, but FFmpeg's code in a tenant",
    "bare_threads": "it is no plug-in",
    "behaviours_third": "a copy of behaviours",
    "behaviours_twin": "a copy of behaviours",
    "behaviours_unloadable": "a copy of behaviours",
    "early": "it is no plug-in",
    "floats": "it is no plug-in",
    "floats_at_load": "it is no plug-in",
    "foreign": "it needs device code that a test makes",
    "gives_function": "it is no plug-in",
    "held_up": "it is no plug-in",
    "hidden_variables_one": "it is no plug-in",
    "hidden_variables_two": "it is no plug-in",
    "hopper": "its clusters take few sizes",
    "host_functions": "it is no plug-in",
    "junk_descriptors": "it is no plug-in, but preloaded into a worker",
    "late": "its calls come when it has ended",
    "later_linked": "it is no plug-in",
    "launch_neighbour": "it is no plug-in",
    "launch_neighbour_at_load": "it is no plug-in",
    "launch_neighbour_on_thread": "it is no plug-in",
    "launch_neighbour_opens": "it is no plug-in",
    "launch_neighbour_twin": "it is no plug-in",
    "launch_takes_room": "it is no plug-in",
    "launching": "a benchmark prepares what it needs",
    "left_behind": "it is no plug-in",
    "left_behind_by_needed": "it is no plug-in",
    "left_behind_needed": "it is no plug-in",
    "left_unseen": "it is no plug-in",
    "many_modules": "it takes minutes",
    "misses_function": "it is no plug-in",
    "needed_plugin": "another library has its factory",
    "needs_a_plugin": "it is refused when it is loaded",
    "needs_function": "it is no plug-in",
    "newer_linked": "it is no plug-in",
    "newer_looks_up": "it is no plug-in",
    "openmp": "it is no plug-in",
    "openmp_twin": "it is no plug-in",
    "ring_first": "it is no plug-in",
    "ring_second": "it is no plug-in",
    "ring_user": "it is no plug-in",
    "runtime_functions_shared": "it is no plug-in",
    "runtime_functions_static": "it is no plug-in",
    "scan_prints": "it only prints",
    "starts_thread": "it is no plug-in",
    "tail_calls": "it is no plug-in",
    "throws_by_needed": "it ends the process that loads it",
    "throws_constructor": "it ends the process that loads it",
    "throws_destructor": "it ends the process that unloads it",
    "throws_ends_thread": "it ends the process that loads it",
    "throws_function": "it ends the process that unloads it",
    "throws_needed": "it ends the process that loads it",
    "throws_number": "it ends the process that loads it",
    "unique_descriptor_one": "it is built without ctxb_add_plugin",
    "unique_descriptor_two": "it is built without ctxb_add_plugin",
    "unique_factory_one": "it is built without ctxb_add_plugin",
    "unique_factory_two": "it is built without ctxb_add_plugin",
    "unique_sdk_one": "it is built without ctxb_add_plugin",
    "unique_sdk_two": "it is built without ctxb_add_plugin",
    "unique_table_one": "it is built without ctxb_add_plugin",
    "unique_table_two": "it is built without ctxb_add_plugin",
    "unique_variables_one": "it is no plug-in",
    "unique_variables_two": "it is no plug-in",
    "versions_newer": "it needs a library of which there are two versions",
    "versions_one": "it needs a library of which there are two versions",
    "versions_same": "it needs a library of which there are two versions",
    "versions_two": "it needs a library of which there are two versions",
}
# Why a test says nothing on a GPU's machine, and on the software device.
NEEDS_SOFTWARE_DEVICE = ("only the software device can be told to fail",
                         "this machine has one device")
NEEDS_GPU = "it needs NVIDIA's driver, and this is the software device"
QUICK_GOOD = ("exposure", "delay", "merge")


class Run:
    def __init__(self, root, options):
        self.program = root / "bin" / "ctxb-validate"
        self.options = options
        # So that the test plug-ins find the driver by the name that every plug-in uses.
        self.environment = dict(os.environ, CTXB_TEST_DRIVER="libcuda.so.1")

    def __call__(self, library, plugin=None, only=None, environment=()):
        command = [str(self.program), str(library), "--json", "--seed", "1", "-j", "1",
                   "--strictness", "10", "--deadline", "20" if only else "60"]
        if plugin:
            command += ["--plugin", plugin]
        if only:
            command += ["--only", only]
        if self.options.driver:
            command += ["--driver", self.options.driver]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                              env={**self.environment, **dict(environment)}, check=False)
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")


    def tests(self):
        done = subprocess.run([str(self.program), "--list"], capture_output=True, text=True,
                              check=True)
        return re.findall(r"^\| \d+ \| `([a-z_.]+)`", done.stdout, re.MULTILINE)


def bad_ones(report):
    return {one["test"]: one for one in report["results"]
            if one["outcome"] in ("fail", "crash", "hang")}


def short(text, length=110):
    text = " ".join(text.replace("|", "/").split())
    return text if len(text) <= length else text[:length - 3] + "..."


def check_breach(run, folder, row):
    library, plugin, test, environment = row
    file = folder / f"{library}.so"
    who = f"{library}: {plugin}" if plugin else library
    if environment:
        who += f" ({' '.join(environment.values())})"
    if not file.exists():
        return {"plugin": who, "expected": test, "outcome": "not built", "right": True, "text": ""}
    report = run(file, plugin, test, environment)
    found = bad_ones(report).get(test)
    if found:
        return {"plugin": who, "expected": test, "outcome": found["outcome"], "right": True,
                "text": found.get("text", "")}
    skipped = [one for one in report["results"] if one["outcome"] == "skip"]
    text = skipped[0]["text"] if skipped else "it passed" if report["results"] else "no such plug-in"
    is_gpu = report.get("driver") != "software"
    if text == NEEDS_GPU or (is_gpu and text in NEEDS_SOFTWARE_DEVICE):
        return {"plugin": who, "expected": test, "outcome": "skip", "right": True, "text": text}
    return {"plugin": who, "expected": test, "outcome": "not caught", "right": False, "text": text}


def check_good(run, file, plugin=None, excused=()):
    report = run(file, plugin)
    bad = {test: one for test, one in bad_ones(report).items() if test not in excused}
    counts = report["summary"]
    reasons = {one.get("text", "") for one in report["results"]
               if one["outcome"] == "skip" and one["text"].startswith("it needs ")}
    text = "; ".join(f"{test}: {one.get('text', '')}" for test, one in bad.items())
    return {"plugin": f"{file.stem}: {plugin}" if plugin else file.stem, "expected": "passes at 10",
            "outcome": f"{counts['pass']} pass, {counts['skip']} skip", "right": not bad,
            "text": text or "; ".join(sorted(reasons))}


def check_one_fault(run, folder, library, plugin, test):
    report = run(folder / f"{library}.so", plugin)
    bad = {name: one for name, one in bad_ones(report).items() if name not in EXCUSED}
    return {"plugin": f"{library}: {plugin}", "expected": f"fails {test} alone",
            "outcome": ", ".join(bad) or "not caught", "right": list(bad) == [test],
            "text": "; ".join(f"{name}: {one.get('text', '')}" for name, one in bad.items())}


def table(rows):
    lines = ["| plug-in | expected | outcome | what it says |", "|---|---|---|---|"]
    for row in rows:
        outcome = row["outcome"] if row["right"] else f"**{row['outcome']}**"
        lines.append(f"| {row['plugin']} | {row['expected']} | {outcome} | {short(row['text'])} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent,
                        help="the folder with bin/, plugins/ and test_plugins/")
    parser.add_argument("--driver", choices=("auto", "nvidia", "software"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--only", default="", help="rows whose plug-in or test has this text")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    run = Run(options.root, options)
    plugins, tests = options.root / "plugins", options.root / "test_plugins"
    breaches = [("behaviours", plugin, test, {}) for test, names in BEHAVIOURS.items()
                for plugin in names.split()] + OTHERS
    work = [(f"{row[0]} {row[1]} {row[2]}", check_breach, (run, tests, row)) for row in breaches]
    for file in sorted(plugins.glob("*.so")):
        if not options.quick or file.stem in QUICK_GOOD:
            work.append((file.stem, check_good, (run, file)))
    for library, plugin in SOUND:
        file = tests / f"{library}.so"
        if file.exists() and (not options.quick or plugin in ("affine", "fills_a_cache")):
            work.append((f"{library} {plugin}", check_good, (run, file, plugin, EXCUSED)))
    for row in ONE_FAULT:
        if (tests / f"{row[0]}.so").exists():
            work.append((f"{row[0]} {row[1]} {row[2]} alone", check_one_fault, (run, tests, *row)))
    work = [one for one in work if options.only in one[0]]
    # Whatever else uses the device hides what a plug-in takes of its memory.
    alone = [one for one in work if "memory.steady" in one[0]]
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda one: one[1](*one[2]), [one for one in work if one not in alone]))
    rows += [check(*given) for _, check, given in alone]

    if not options.only:
        has_plugin = {row["expected"] for row in rows if row["outcome"] != "not built"}
        rows += [{"plugin": "none", "expected": test, "outcome": "not proved", "right": False,
                  "text": "no plug-in shows that this test can fail: add one to the table"}
                 for test in run.tests() if test not in has_plugin]
        named = {row[0] for row in OTHERS} | {library for library, _ in SOUND} | LEFT_OUT.keys()
        rows += [{"plugin": file.stem, "expected": "a row", "outcome": "none", "right": False,
                  "text": "add it to the table, or to LEFT_OUT with the reason"}
                 for file in sorted(tests.glob("*.so")) if file.stem not in named]
    wrong = [row for row in rows if not row["right"]]
    if options.markdown:
        options.markdown.write_text(table(rows))
    if options.json:
        options.json.write_text(json.dumps({"schema": "ctxbroker.validate_all/1", "rows": rows},
                                           indent=1) + "\n")
    print(table(rows if not options.quick else wrong) if rows and (wrong or not options.quick) else "",
          end="")
    print(f"{len(rows)} rows, {len(wrong)} not as they have to be")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
