#!/usr/bin/env bash
# Deletes the cluster of up.sh; what its runs wrote stays in .thawline/kind.
set -euo pipefail
num_missing=0
for tool in docker kind; do
    command -v "$tool" >/dev/null || {
        echo "kind-down: $tool is not installed; put it on the PATH" >&2
        num_missing=$((num_missing + 1))
    }
done
[ "$num_missing" -eq 0 ] || exit 2
kind delete cluster --name thawline
