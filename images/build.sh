#!/usr/bin/env bash
# Builds images: images/build.sh [NAME...], of data, trainer-cpu and trainer-gpu; the first two when none is named.
#   BASE_IMAGE=...   what they stand on: Python 3.11 with venv and a shell. By default the one that the Dockerfiles pin
#                    or, where that cannot be pulled, one made from Debian's packages (images/base.sh)
#   NO_CACHE=1       builds every layer anew
#   TAG=...          a tag other than components/images.py says
# The package index is reached as pip reaches it on this machine: pip's configuration and its certificates are mounted
# while packages are installed, and stay in no layer.
set -euo pipefail
cd "$(dirname "$0")/.."
. images/lib.sh

OWN_BASE=thawline/base:bookworm
names=("$@")
[ $# -gt 0 ] || names=(data trainer-cpu)
for name in "${names[@]}"; do
    [ -f "images/$name/Dockerfile" ] || die "there is no image '$name'; say data, trainer-cpu or trainer-gpu"
done
docker=$(find_docker) || die "no Docker client that builds with BuildKit; images/engine.sh start installs one"
timeout 20 "$docker" info >/dev/null 2>&1 || die "no Docker engine answers; images/engine.sh start may start one"
python=${PYTHON:-$(command -v .venv/bin/python || command -v python3.11 || true)}
[ -n "$python" ] || die "no Python 3.11; install it or set PYTHON"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

base_image() {
    local pinned
    pinned=$(sed -n 's/^ARG BASE_IMAGE=//p' images/data/Dockerfile)
    if [ -n "${BASE_IMAGE:-}" ]; then
        echo "$BASE_IMAGE"
    elif "$docker" image inspect "$pinned" >/dev/null 2>&1; then
        echo "$pinned"
    elif "$docker" image inspect "$OWN_BASE" >/dev/null 2>&1; then
        echo "$OWN_BASE"
    elif timeout 300 "$docker" pull --quiet "$pinned" >/dev/null 2>&1; then
        echo "$pinned"
    else
        echo "base: $pinned cannot be pulled here; making one" >&2
        images/base.sh "$OWN_BASE" >&2 || exit 1
        echo "$OWN_BASE"
    fi
}

# pip's configuration here, without what lies on this machine's disk.
write_secrets() {
    "$python" -m pip config list >"$work/listed"
    "$python" - "$work" <<'PYTHON'
import ast, os, shutil, sys
from pathlib import Path

folder = Path(sys.argv[1])
told = {}
for line in (folder / "listed").read_text().splitlines():
    name, _, value = line.partition("=")
    told[name.rpartition(".")[2]] = ast.literal_eval(value)
lines = ["[global]"]
for name in ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout"):
    kept = [word for word in told.get(name, "").split() if not word.startswith(("file:", "/"))]
    if kept:
        lines.append(f"{name} = " + "\n    ".join(kept))
(folder / "pip.conf").write_text("\n".join(lines) + "\n")
places = [told.get("cert"), *(os.environ.get(name) for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"))]
bundle = next((place for place in places if place and Path(place).is_file()), None)
shutil.copyfile(bundle, folder / "ca.crt") if bundle else (folder / "ca.crt").touch()
PYTHON
}

# The CPU build of torch has no index of its own that all reach: pip looks where it looks anyway, then PyTorch's.
fetch_torch() {
    local torch
    torch=$(grep '^torch==' requirements/cpu.txt)
    compgen -G "images/wheels/torch-${torch#torch==}-*.whl" >/dev/null && return
    rm -f images/wheels/torch-*.whl
    "$python" -m pip download --quiet --no-deps --dest images/wheels "$torch" 2>/dev/null \
        || "$python" -m pip download --quiet --no-deps --dest images/wheels \
            --index-url https://download.pytorch.org/whl/cpu "$torch" \
        || die "$torch cannot be had; put its wheel into images/wheels"
}

# The commit that last changed what an image is made of; a changed checkout has none yet.
revision() {
    local inputs=(images components trainer pyproject.toml LICENSE "requirements/$1.txt")
    [ -z "$(git status --porcelain -- "${inputs[@]}" 2>/dev/null)" ] || return 0
    git log -1 --format=%H -- "${inputs[@]}" 2>/dev/null || true
}

build() {
    local name=$1 tag lock version revision
    tag=${TAG:-$(sed -n "s|^[A-Z_]*_IMAGE = \"\(thawline/$name:.*\)\"|\1|p" components/images.py)}
    lock=$(sed -n 's|^COPY .* requirements/\(.*\)\.txt .*|\1|p' "images/$name/Dockerfile")
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
    revision=$(revision "$lock")
    [ "$lock" != cpu ] || fetch_torch
    echo "$tag: building; its packages take minutes where they are not cached"
    DOCKER_BUILDKIT=1 "$docker" build --progress=plain --network=host ${NO_CACHE:+--no-cache} --file "images/$name/Dockerfile" \
        --secret "id=pip.conf,src=$work/pip.conf" --secret "id=ca.crt,src=$work/ca.crt" \
        --build-arg "BASE_IMAGE=$base" --build-arg "VERSION=$version" --build-arg "REVISION=${revision:-unknown}" \
        --tag "$tag" . >"$work/log" 2>&1 || { tail -30 "$work/log" >&2; die "$tag could not be built"; }
    "$docker" image inspect --format '{{.Size}}' "$tag" | awk -v tag="$tag" '{printf "%s: %.0f MB\n", tag, $1 / 1e6}'
}

base=$(base_image)
write_secrets
for name in "${names[@]}"; do build "$name"; done
