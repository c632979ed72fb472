# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced: installs what the distribution has, and only what is missing.
# The scripts are tried on Debian 12 and on Ubuntu 24.04, which has the same package names.

packages_build=(
  g++ cmake ninja-build make pkg-config git # make: readers' own projects are built with it
  libboost-dev libboost-filesystem-dev libboost-log-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  libpng-dev libopenexr-dev libsndfile1-dev libcli11-dev nlohmann-json3-dev libzstd-dev liblz4-dev
  python3-numpy         # for the tests that compute graphs a second time
  python3-jsonschema    # for the tests of JSON documents
  python3-venv patchelf) # for the wheel of the Python package and its tests
packages_fetch=(python3-pip ca-certificates) # pip fetches NVIDIA's wheels over https
# dpkg-dev: users build with it. mmdebstrap: a bare Debian to install packages in. The
# compilers: headers have to compile with them. FFmpeg and GStreamer: their CUDA code runs as a tenant.
packages_lint=(clang-format clang-tidy dpkg-dev lintian mmdebstrap abigail-tools
  clang gcc-mingw-w64-x86-64-posix g++-mingw-w64-x86-64-posix
  libavutil-dev gstreamer1.0-plugins-base gstreamer1.0-plugins-bad gstreamer1.0-tools)
packages_bundle=(patchelf)
packages_docs=(doxygen python3-venv) # pip fetches the rest of what builds the manual

# The runtimes of the sanitizers come with g++; nothing to install for them.

distribution() { (. /etc/os-release 2>/dev/null && printf '%s %s' "${ID:-unknown}" "${VERSION_ID:-}") || true; }

package_installed() {
  [[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

# as_root COMMAND...: runs it as root, directly or through sudo.
as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    return 127
  fi
}

# install_packages NAME...: does nothing, and asks for no rights, when all of them are there.
install_packages() {
  local name missing=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    if [[ "${CTXB_SKIP_PACKAGES:-0}" == 1 ]]; then return 0; fi
    fail "this system ($(distribution)) has no apt-get; only Debian 12 and Ubuntu 24.04 are set up by this script." \
      "Install what these Debian packages hold: $*" \
      "Then run this again with CTXB_SKIP_PACKAGES=1, which skips this step."
  fi
  for name in "$@"; do
    if ! package_installed "$name"; then missing+=("$name"); fi
  done
  if ((${#missing[@]} == 0)) || [[ "${CTXB_SKIP_PACKAGES:-0}" == 1 ]]; then return 0; fi

  case "$(distribution)" in
    "debian 12" | "ubuntu 24.04") ;;
    *) warn "$(distribution) is untried; Debian 12 and Ubuntu 24.04 are tried." ;;
  esac
  say "installing from the distribution: ${missing[*]}"
  if ((EUID != 0)) && ! command -v sudo >/dev/null; then
    fail "packages are missing, and installing them needs root or sudo; this is neither." \
      "As root: apt-get install --no-install-recommends ${missing[*]}"
  fi
  local log
  log="$(mktemp)"
  if ! as_root apt-get -o DPkg::Lock::Timeout=120 update >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    fail "apt-get update failed (above); the package lists could not be read." \
      "Check the network and /etc/apt/sources.list, then run this again."
  fi
  if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 \
    install -y -q --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    fail "apt-get could not install: ${missing[*]} (its words above)." \
      "It needs the network and the package sources of /etc/apt."
  fi
  rm -f "$log"
}
