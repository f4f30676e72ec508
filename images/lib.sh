# What the scripts beside it share; sourced from the repository's root.

die() { echo "${0##*/}: $*" >&2; exit 1; }

# A client whose `docker build` is BuildKit's: since version 23 that takes the buildx plugin, before it is built in.
find_docker() {
    local candidate version
    for candidate in ${DOCKER:-docker /usr/bin/docker}; do
        version=$("$candidate" --version 2>/dev/null | sed -n 's/^Docker version \([0-9]*\).*/\1/p') || continue
        [ -n "$version" ] || continue
        if [ "$version" -lt 23 ] || "$candidate" buildx version >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

# Debian's packages, where this is Debian and we may: apt_install NAME...
apt_install() {
    [ "$(id -u)" = 0 ] || die "only root may install $*"
    command -v apt-get >/dev/null || die "this is no Debian; install $* by hand"
    # A third party's list that cannot be had is no reason to stop: the installation below tells.
    apt-get update -qq >/dev/null 2>&1 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "$@" >/dev/null 2>&1 \
        || die "apt-get install $* failed; run it by hand to see why"
}
