#!/usr/bin/env bash
# A Docker engine on this machine:
#   images/engine.sh check   says in one line whether one answers or can be had; exits 1 where none can
#   images/engine.sh start   the same, and installs and starts one where none answers
#   images/engine.sh stop    stops the one that `start` started
set -euo pipefail
cd "$(dirname "$0")/.."
. images/lib.sh

PID_FILE=/var/run/thawline-dockerd.pid
LOG=/var/log/thawline-dockerd.log

answers() { local docker; docker=$(find_docker) && timeout 20 "$docker" info >/dev/null 2>&1; }

# Why none can be had here, or nothing.
obstacle() {
    if [ -n "${DOCKER_HOST:-}" ]; then
        echo "DOCKER_HOST names an engine, and that one does not answer"
    elif [ "$(id -u)" != 0 ]; then
        echo "only root may start one"
    elif ! command -v dockerd >/dev/null && ! command -v apt-get >/dev/null; then
        echo "this is no Debian to install one on"
    elif ! grep -q ' cgroup2\? ' /proc/mounts; then
        echo "no control groups are mounted"
    elif ! unshare --mount sh -c 'mount -t tmpfs none /mnt' 2>/dev/null; then
        echo "even root may mount nothing here, as in a container without privileges"
    fi
}

start() {
    if ! command -v dockerd >/dev/null || ! find_docker >/dev/null; then
        echo "engine: installing docker.io"
        apt_install docker.io
    fi
    # Without networks of its own it needs no packet filter: everything here runs on the machine's network.
    setsid nohup dockerd --pidfile "$PID_FILE" --bridge=none --iptables=false --ip-forward=false \
        >"$LOG" 2>&1 </dev/null &
    for _ in $(seq 60); do
        answers && return
        sleep 1
    done
    die "dockerd did not start: $(grep -o 'failed to start daemon.*\|level=error.*' "$LOG" | tail -1); its log is $LOG"
}

case "${1:-}" in
check | start)
    if answers; then
        echo "engine: a Docker engine answers"
        exit
    fi
    reason=$(obstacle)
    [ -z "$reason" ] || die "no Docker engine answers, and $reason"
    [ "$1" = start ] && start
    echo "engine: $([ "$1" = start ] && echo started || echo "none answers, but one can be started")"
    ;;
stop)
    [ -f "$PID_FILE" ] || die "no engine was started by this script"
    kill "$(cat "$PID_FILE")"
    ;;
*)
    die "say check, start or stop"
    ;;
esac
