# Creates .venv with all packages of requirements.txt. Source it from the root
# of the project, in a script that runs under `set -euo pipefail`. Sets PYTHON
# to the environment's interpreter.

fail() {
  echo "error: $*" >&2
  exit 1
}

find_python() {
  local candidate
  for candidate in "${ETCMODEL_PYTHON:-}" python3.11 python3.12 python3.10 \
    python3 python; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null || continue
    if "$candidate" -c 'import sys; sys.exit(
        not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

make_environment() {
  local stamp=.venv/installed wanted free_kb base_python
  PYTHON=$PWD/.venv/bin/python
  wanted=$(cat requirements.txt pyproject.toml | cksum)
  if [ -x "$PYTHON" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] &&
    "$PYTHON" -c '' 2>/dev/null; then
    echo "Using the environment in .venv"
    return
  fi

  base_python=$(find_python) || fail "no Python 3.10, 3.11 or 3.12 was found" \
    "on the PATH. Install one of them, or set its path in ETCMODEL_PYTHON."
  free_kb=$(df -Pk . | awk 'NR == 2 { print $4 }')
  [ "$free_kb" -ge 4000000 ] || fail "the installation needs 4 GB of free disk" \
    "space in $PWD, but only $((free_kb / 1000)) MB are free."

  echo "Creating .venv with $("$base_python" --version)"
  rm -rf .venv
  "$base_python" -m venv .venv || fail "$base_python could not create a virtual" \
    "environment. On Debian and Ubuntu, install the venv package:" \
    "apt-get install python3-venv"
  echo "Installing the packages of requirements.txt (a few minutes, 2.5 GB)"
  if "$PYTHON" -c 'import sys; sys.exit(sys.version_info >= (3, 11))'; then
    # The pip that comes with Python 3.10 takes very long to choose versions.
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --upgrade \
      pip || fail "pip could not be updated. See its messages above."
  fi
  "$PYTHON" -m pip install --quiet --disable-pip-version-check \
    -r requirements.txt || fail "the packages could not be installed. See pip's" \
    "messages above, and check that PyPI is reachable."
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps \
    --editable . || fail "the package itself could not be installed. See" \
    "pip's messages above."
  echo "$wanted" >"$stamp"
}

make_environment
