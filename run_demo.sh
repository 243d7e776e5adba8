#!/usr/bin/env bash
# Installs everything into .venv and runs the demo: a generated corpus, training,
# evaluation, export, and an answer out of the exported model. Options are the
# demo's own: ./run_demo.sh --help
set -euo pipefail
cd "$(dirname "$0")"
. tools/environment.sh
exec "$PYTHON" -m etcmodel demo "$@"
