# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced: clang-tidy over what a preset compiles, perhaps with warning options that only GCC knows.

# tidy PRESET: every source of the preset that has changed since it was last clean.
tidy() { tools/lib/tidy.py "build/$1"; }
