# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced after expect.sh by the tests of the Python package: the wheel of this build, and the package's own tests.

unset CTXBROKER_HOME PYTHONPATH PYTHONHOME
export CTXBROKER_DRIVER=software XDG_CACHE_HOME="$scratch/cache" XDG_CONFIG_HOME="$scratch/config"

# pack_wheel FOLDER: leaves its path in `wheel`.
pack_wheel() {
  run "$CTXB_SOURCE/tools/wheel" --from "$CTXB_BUILD" "$1"
  expect_status 0
  wheel="$(echo "$1"/ctxbroker-*-py3-none-manylinux_2_*_x86_64.whl)"
  expect_file "$wheel"
}

# install_wheel VENV: as a user does, but from nowhere else.
install_wheel() {
  run "$1/bin/pip" install --quiet --no-index --no-deps --force-reinstall --disable-pip-version-check "$wheel"
  expect_status 0
}

# run_package_tests VENV: away from the sources.
run_package_tests() {
  local test
  cd "$scratch"
  for test in "$CTXB_SOURCE"/python/tests/test_*.py; do
    run "$1/bin/python" -W error::RuntimeWarning "$test"
    printf '%s: %s\n' "${test##*/}" "$(tail -1 "$scratch/err")"
    if ((status != 0)); then failed "$test"; fi
  done
}
