#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the Debian packages hold serves projects as an installation does. lintian finds no error.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/consumers.sh"
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"

if command -v lintian >/dev/null; then
  run lintian --fail-on error "$packages"/*.deb
  expect_status 0
else
  echo "lintian is not here, so it was not asked; tools/setup --lint installs it"
fi

root="$scratch/root"
mkdir "$root"
for package in "$packages"/*.deb; do
  # No package has a file of another one.
  run dpkg-deb --fsys-tarfile "$package"
  tar -xf "$scratch/out" -C "$root" --keep-old-files --no-same-owner || failed "$package has a file of another package"
done
# Nothing names a folder of the build, but for the line information of plug-ins, which names their
# source files on purpose.
plugin_libraries="/ctxbroker/plugins/[^/]*\.so\$"
run bash -c 'grep -rlF -e "$1" -e "$2" -e "$3" "$4" | grep -v "$5"' - \
  "$CTXB_SOURCE" "$CTXB_BUILD" "$scratch" "$root" "$plugin_libraries"
expect_status 1
# The gate is nobody's driver for those who make packages, either.
for package in "$packages"/*.deb; do
  run dpkg-deb -I "$package" shlibs
  [[ "$out" != *libcuda* ]] || failed "shlibs names libcuda"
done
# Nothing of NVIDIA's is in them, or needed.
run bash -c 'find "$0" -name "*.so*" -type f -exec readelf -d {} +' "$root"
for library in libcudart libcufft libcublas; do
  [[ "$out" != *"$library"* ]] || failed "a package needs $library"
done
consumers "$root/usr"
