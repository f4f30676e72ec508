#!/usr/bin/env bash
# A base image made from Debian's packages, for machines that can pull none: images/base.sh TAG
# It holds what our images need of a base: a shell and Python 3.11 with venv.
set -euo pipefail
cd "$(dirname "$0")/.."
. images/lib.sh

tag=${1:?say the tag, e.g. thawline/base:bookworm}
[ "$(id -u)" = 0 ] || die "only root may run debootstrap; set BASE_IMAGE to an image with Python 3.11 instead"
docker=$(find_docker) || die "no Docker client that builds with BuildKit; images/engine.sh start installs one"
command -v debootstrap >/dev/null || apt_install debootstrap

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
# Where this machine's own packages come from, if it is Debian; else debootstrap's default.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 2>/dev/null | head -1)
debootstrap --variant=minbase --include=ca-certificates,python3.11,python3.11-venv bookworm "$root" ${mirror:+"$mirror"} \
    >"$work/log" 2>&1 || { tail -5 "$work/log" >&2; die "debootstrap failed"; }

# What is left is the packages' own, so that the same packages make the same base. Bytecode carries its source's time,
# which is the package's; whatever the installation itself made gets the release's.
released=$(sed -n 's/^Date: //p' "$root"/var/lib/apt/lists/*_Release | head -1)
rm -rf "$root"/var/cache/* "$root"/var/lib/apt/lists/* "$root"/var/log/* "$root"/tmp/* "$root"/run/* \
    "$root"/usr/share/{doc,man,locale,info,lintian} "$root"/etc/{resolv.conf,hostname,machine-id} "$root"/dev/*
find "$root"/etc "$root"/var -name '*-' -type f -delete
tar --create --directory "$root" --numeric-owner --sort=name --mtime="${released:-1980-01-01}" --clamp-mtime . \
    | "$docker" import --change 'CMD ["python3.11"]' - "$tag" >/dev/null
echo "base: $tag, made from Debian's packages"
