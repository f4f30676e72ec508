#!/usr/bin/env bash
# A base image made from Debian's packages, for machines that can pull none: images/base.sh TAG
# It holds what our images need of a base: a shell and Python 3.11 with venv.
set -euo pipefail
cd "$(dirname "$0")/.."
. images/lib.sh

tag=${1:-}
[ -n "$tag" ] || die "say the tag, e.g. thawline/base:bookworm"
[ "$(id -u)" = 0 ] || die "only root may run debootstrap; set BASE_IMAGE to an image with Python 3.11 instead"
docker=$(find_docker) || die "no Docker client that builds with BuildKit; images/engine.sh start installs one"
command -v debootstrap >/dev/null || apt_install debootstrap

# In memory: a package manager waits for the disk after every file.
work=$(mktemp -d)
trap 'umount "$work"; rmdir "$work"' EXIT
mount -t tmpfs -o size=1g,mode=755 none "$work"
root=$work/root

# Where this machine's own packages come from, security fixes among them, if it is Debian 12; else debootstrap's default.
sources() { apt-get indextargets --format "$1" 'Created-By: Packages' 'Origin: Debian' "Codename: bookworm$2" 2>/dev/null; }
quietly() { "$@" >"$work/log" 2>&1 || { tail -5 "$work/log" >&2; die "$1 failed"; }; }

mirror=$(sources '$(REPO_URI)' '' | head -1)
quietly debootstrap --variant=minbase bookworm "$root" ${mirror:+"$mirror"}
for suite in '' -updates -security; do sources 'deb $(REPO_URI) $(RELEASE) main' "$suite"; done | sort -u >"$work/sources"
[ ! -s "$work/sources" ] || cp "$work/sources" "$root/etc/apt/sources.list"
export DEBIAN_FRONTEND=noninteractive
quietly chroot "$root" apt-get update
quietly chroot "$root" apt-get upgrade --yes
quietly chroot "$root" apt-get install --yes --no-install-recommends ca-certificates python3.11 python3.11-venv

# What is left is the packages' own, so that the same packages make the same base. Bytecode carries its source's time,
# which is the package's; whatever the installation itself made gets the release's.
released=$(sed -n 's/^Date: //p' "$root"/var/lib/apt/lists/*bookworm_*Release | head -1)
rm -rf "$root"/var/cache/* "$root"/var/lib/apt/lists/* "$root"/var/log/* "$root"/tmp/* "$root"/run/* "$root"/dev/* \
    "$root"/usr/share/{doc,man,locale,info,lintian} "$root"/etc/{resolv.conf,hostname,machine-id}
find "$root"/etc "$root"/var -name '*-' -type f -delete
tar --create --directory "$root" --numeric-owner --sort=name --mtime="${released:-1980-01-01}" --clamp-mtime . \
    | "$docker" import --change 'CMD ["python3.11"]' - "$tag" >/dev/null
echo "base: $tag, made from Debian's packages"
