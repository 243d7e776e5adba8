#!/usr/bin/env bash
# Checks everything, and builds a wheel and a source distribution in dist.
# Publishes nothing; see tools/release.py.
set -euo pipefail
cd "$(dirname "$0")"
. tools/environment.sh
exec "$PYTHON" -m tools.release
