# shellcheck shell=bash
# Sourced: clang-tidy over what a preset compiles, perhaps with warning options that only GCC knows.

# tidy PRESET: every source of the preset, as many at once as there are cores.
tidy() {
  local folder="build/$1"
  sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$folder/compile_commands.json" | sort -u |
    grep -E '\.(c|cpp)$' | grep -vF "$ctxb_root/build/" |
    xargs -r -P "${CTXB_JOBS:-$(nproc)}" -n 4 \
      clang-tidy --quiet -p "$folder" --extra-arg=-Wno-unknown-warning-option 2>/dev/null
}
