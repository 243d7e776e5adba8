#!/usr/bin/env bash
# Installs everything into .venv and runs the tests. Can be repeated; the
# environment is made once. ./run_tests.sh --help tells what can be chosen.
set -euo pipefail
cd "$(dirname "$0")"
. tools/environment.sh
exec "$PYTHON" -m tools.run_tests "$@"
