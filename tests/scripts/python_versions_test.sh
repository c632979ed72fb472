#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python package on every Python from 3.9 on that this machine has, in PATH or from pyenv.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
. "$(dirname "$0")/python_wheel.sh"
pack_wheel "$scratch/wheels"

tried="" without_venv=""
for python in python3 python3.{9..15} "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3; do
  # A shim of pyenv is there also for a version that is not in use.
  version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 9))' 2>/dev/null)" ||
    continue
  if [[ " $tried $without_venv " == *" $version "* ]]; then continue; fi
  venv="$scratch/venv-$version"
  run "$python" -m venv "$venv"
  if ((status != 0)); then # a distribution has that part as a package of its own
    without_venv+=" $version"
    continue
  fi
  echo "Python $version:"
  install_wheel "$venv"
  run_package_tests "$venv"
  rm -rf "$venv"
  tried+=" $version"
done
echo "tried:$tried${without_venv:+; without venv, and so not tried:$without_venv}"
if [[ -z "$tried" ]]; then
  echo "skipped: there is no Python that can make a virtual environment"
  exit 77
fi
