# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts in tools/: where things are, how to say something, how to stop.
# Every script runs from the repository root, wherever it was called from.

ctxb_root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
cd "$ctxb_root"
ctxb_script="${0##*/}"

say() { printf '%s: %s\n' "$ctxb_script" "$*"; }
warn() { printf '%s: warning: %s\n' "$ctxb_script" "$*" >&2; }

# fail WHAT [WHAT TO DO]...: ends the script with status 1.
fail() {
  printf '%s: error: %s\n' "$ctxb_script" "$1" >&2
  shift
  if (($# > 0)); then printf '  %s\n' "$@" >&2; fi
  exit 1
}

# usage_error TEXT: an argument that the script does not know; status 2.
usage_error() {
  printf '%s: error: %s\n  Try: tools/%s --help\n' "$ctxb_script" "$1" "$ctxb_script" >&2
  exit 2
}

# help_text: the comment at the head of the calling script, without its "# ".
help_text() { sed -n '3,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$0"; }
