#!/bin/sh
# Runs in the build stages of the images. The same inputs give the same files: names, modes, times and bytes.
#   install.sh packages LOCK   a virtual environment with exactly what the lock names, and without pip
#   install.sh code SOURCE     this repository's distribution beside it
set -eu

HOME_DIR=/opt/thawline
PYTHON=$HOME_DIR/venv/bin/python
SECRETS=/run/secrets

export PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 SOURCE_DATE_EPOCH LC_ALL=C.UTF-8
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore PIP_CACHE_DIR=/cache/pip
export PIP_CONSTRAINT=/build/constraints.txt
# How the index is reached is the builder's: mounted for this moment, left in no layer.
[ ! -s $SECRETS/pip.conf ] || export PIP_CONFIG_FILE=$SECRETS/pip.conf
[ ! -s $SECRETS/ca.crt ] || export PIP_CERT=$SECRETS/ca.crt SSL_CERT_FILE=$SECRETS/ca.crt

pip() { /tools/bin/python -m pip --python $PYTHON --quiet "$@"; }

# Bytecode that names the source's hash, not its time, and is never checked: the root file system is read-only. Each
# entry is compiled by a process of its own, one order within it, so that its bytes depend on nothing else. Some packages
# ship templates that are no Python: they stay as they are.
compile_below() {
    find "$1" -mindepth 1 -maxdepth 1 \( -type d -o -name '*.py' \) ! -name '*.dist-info' -print0 | sort -z |
        xargs -0 -n 1 -P "$(nproc)" $PYTHON -m compileall -qq --invalidation-mode unchecked-hash || true
}

settle() { find "$@" -depth -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +; }

case "$1" in
packages)
    python3.11 -m venv /tools
    python3.11 -m venv --without-pip $HOME_DIR/venv
    site=$($PYTHON -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    pip install --no-deps --no-compile --find-links /wheels --requirement "$2"
    echo $HOME_DIR/code >"$site/thawline.pth"
    compile_below "$site"
    settle $HOME_DIR
    ;;
code)
    # The page for people is not the image's: a changed one must not change it.
    : >"$2/README.md"
    pip install --no-deps --no-compile --target $HOME_DIR/code "$2"
    # The command and its DAGs stay outside.
    rm -r $HOME_DIR/code/bin
    compile_below $HOME_DIR/code
    settle $HOME_DIR/code
    ;;
esac
