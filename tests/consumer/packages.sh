# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the tests of the Debian packages: makes them in $packages, or skips the test.
if ! command -v dpkg-shlibdeps >/dev/null; then
  echo "skipped: no dpkg-shlibdeps here; Debian packages are made with the package dpkg-dev"
  exit 77
fi
packages="$scratch/packages"
run "$(dirname "$CMAKE")/cpack" --config "$CTXB_BUILD/CPackConfig.cmake" -B "$packages"
expect_status 0
rm -rf "$packages/_CPack_Packages"
names="$(cd "$packages" && ls ./*.deb | sed 's,^\./,,; s/_.*//' | sort | tr '\n' ' ')"
[[ "$names" == "ctxbroker-tools libctxbroker-boost-log0 libctxbroker-dev libctxbroker0 " ]] ||
  failed "other packages: $names"
