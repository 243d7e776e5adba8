#!/usr/bin/env bash
# Installs everything into .venv and runs the tests, once under Keras 3 and once
# under Keras 2. Can be repeated; the environment is made once.
#
#   ./run_tests.sh                             style and all tests
#   ./run_tests.sh etcmodel/layers -k dropout  just these, pytest's own options
set -euo pipefail
cd "$(dirname "$0")"
. tools/environment.sh

if [ $# -eq 0 ]; then
  echo "Style: ruff"
  "$PYTHON" -m ruff format --check --quiet . || fail "these files are not" \
    "formatted (see above). Run: .venv/bin/ruff format ."
  "$PYTHON" -m ruff check --quiet . || fail "ruff has complaints (see above)."
fi

status=0
for legacy in 0 1; do
  echo "Tests under Keras $((3 - legacy))"
  TF_USE_LEGACY_KERAS=$legacy "$PYTHON" -m pytest "$@" || status=$?
done
exit $status
