#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Debian packages in a bare Debian that apt has just made: they install, sample_host works,
# ldconfig does not take the gate for the machine's driver, and removal leaves nothing. Needs root,
# mmdebstrap and Debian's archive.
set -euo pipefail
source "$CTXB_SOURCE/tests/scripts/expect.sh"
if ((EUID != 0)) || ! command -v mmdebstrap >/dev/null; then
  echo "skipped: needs root and mmdebstrap, which tools/setup --lint installs"
  exit 77
fi
suite="$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")"
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"

mkdir "$scratch/in"
cp "$packages"/*.deb "$CTXB_SOURCE/assets/flower.png" "$scratch/in/"
cat >"$scratch/in/inside" <<'END'
echo "a bare Debian is there"
set -eux
# What a user's scans keep in the cache folder stays when the packages go, so it is kept apart.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C CTXBROKER_DRIVER=software XDG_CACHE_HOME=/tmp/cache
files() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /in -o -path /tmp -o -path /run -o -path /var/cache \
  -o -path /var/lib/apt -o -path /var/log \) -prune -o -path '*ctxbroker*' -print; }
test -z "$(files)"
apt-get install -y --no-install-recommends /in/*.deb
ldconfig
echo "libraries: $(ldconfig -p | grep -oE '(libctxbroker|libcuda)[^ ]*\.so\.[0-9]' | sort -u | tr '\n' ' ')"
# The control: under a library's name and in a library's folder, it would be the machine's driver.
cp /usr/lib/ctxbroker/ctxbroker_gate.so /usr/lib/libgate.so
ldconfig
echo "with a copy: $(ldconfig -p | grep -oE 'libcuda[^ ]*\.so\.[0-9]' | sort -u | tr '\n' ' ')"
rm -f /usr/lib/libgate.so /usr/lib/libcuda.so.1
ldconfig
cd /tmp
sample_host doctor
sample_host image /in/flower.png -o out.png --plugin exposure:stops=0.7 --plugin blur:radius=6
test -s out.png
ctxb-validate /usr/lib/ctxbroker/plugins/gain.so --strictness 3
apt-get purge -y libctxbroker0 libctxbroker-boost-log0 libctxbroker-dev ctxbroker-tools
ldconfig
test -z "$(files)"
test -z "$(ldconfig -p | grep ctxbroker)"
echo "all is gone"
END
# mmdebstrap sends what a hook prints to its own standard error.
run mmdebstrap --variant=apt --quiet --customize-hook="copy-in '$scratch/in' /" \
  --customize-hook='chroot "$1" sh /in/inside 2>&1' --format=null "$suite" /dev/null
out+="$err" err=""
if [[ "$out" != *"a bare Debian is there"* ]]; then
  printf 'skipped: no bare Debian can be made here:\n%s\n' "$out"
  exit 77
fi
expect_status 0
expect_out "gate: in force"
expect_out "libraries: libctxbroker.so.0 libctxbroker_boost_log.so.0 "$'\n'
expect_out "with a copy: libcuda.so.1 "
expect_out "all is gone"
