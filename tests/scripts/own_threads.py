#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the library starts each of its threads with start_own_thread, so that none inherits
the floating-point control and the signal mask of the plug-in in whose call it starts. std::async
is left out: it serves calls of the host alone.

  own_threads.py ROOT      checks the sources below ROOT
  own_threads.py --self-test
"""
import pathlib
import re
import sys

FOLDERS = ["broker/src", "broker/shared", "broker/software_device"]
HOME = "broker/shared/process/own_thread.hpp"
STARTS = re.compile(r"\bstd::j?thread(\s+\w+)?\s*[({]|\bpthread_create\s*\("
                    r"|\bthrd_create\s*\(")


def found_in(text):
    """Returns the numbers of the lines that start a thread."""
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        if STARTS.search(line.split("//")[0]):
            lines.append(number)
    return lines


def self_test():
    starts = ["thread_ = std::thread([this] { run(); });", "std::thread later([this] {",
              "std::jthread one{run};", "pthread_create(&id, 0, f, 0);"]
    others = ["std::thread thread_;", "std::vector<std::thread> others;",
              "void join(std::thread& one) {",
              "// std::thread(run) would inherit", "x = start_own_thread([this] { run(); });",
              "std::thread done = std::move(thread_);", "std::this_thread::yield();"]
    wrong = [line for line in starts if not found_in(line)]
    wrong += [line for line in others if found_in(line)]
    for line in wrong:
        print("own_threads: wrong about:", line)
    return 1 if wrong else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1])
    wrong = 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.[ch]pp")):
            name = path.relative_to(root).as_posix()
            if name == HOME:
                continue
            for line in found_in(path.read_text(encoding="utf-8")):
                print(f"{name}:{line}: a thread starts without start_own_thread, and inherits the "
                      "floating-point control of the plug-in in whose call it starts; use that "
                      f"function ({HOME})")
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
