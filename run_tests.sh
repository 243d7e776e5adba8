#!/usr/bin/env bash
# Installs everything into .venv and runs the tests, under Keras 3 and under
# Keras 2. Can be repeated; the environment is made once.
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

# What has nothing to do with Keras is tested once. The layers are tested under
# Keras 2 when the tests under Keras 3 are through, which take less time.
without_keras=()
later=()
if [ $# -eq 0 ]; then
  later=(etcmodel/layers)
  without_keras=(--ignore=benchmarks --ignore=etcmodel/feature_utils)
  without_keras+=(--ignore="${later[0]}")
  for name in records pages features features_real_pages labels examples \
    decoding predictions metrics pipeline preprocess inspect_record \
    bad_input; do
    without_keras+=("--ignore-glob=*/etcmodel/tasks/*/${name}_test.py")
  done
fi

# Both at once: a run keeps about one core busy, and most of what it does is
# too small for several threads.
export TF_NUM_INTRAOP_THREADS=1
log=$(mktemp)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -f "$log"' EXIT
TF_USE_LEGACY_KERAS=1 "$PYTHON" -m pytest "${without_keras[@]}" "$@" \
  >"$log" 2>&1 &
keras_2=$!
status=0
echo "Tests under Keras 3 (those under Keras 2 run beside them)"
TF_USE_LEGACY_KERAS=0 "$PYTHON" -m pytest "$@" || status=$?
keras_2_status=0
if [ ${#later[@]} -gt 0 ]; then
  echo "Tests of ${later[*]} under Keras 2"
  TF_USE_LEGACY_KERAS=1 "$PYTHON" -m pytest "${later[@]}" || keras_2_status=$?
fi
wait "$keras_2" || keras_2_status=$?
echo "Tests under Keras 2"
cat "$log"
exit $((status ? status : keras_2_status))
