#!/usr/bin/env bash
# A cluster on this machine with the parts that production has, and one retrain of the demo on it. With GPU=1 its nodes have
# GPUs, real or fake, and a TrainJob that asks for them takes the place of the retrain. Can be run again: what is there stays.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly CLUSTER=thawline NAMESPACE=thawline MIN_MEMORY_GIB=16 PORT=8888
readonly NVIDIA_OPERATOR=v26.3.1 FAKE_OPERATOR=0.2.0
overlay=kind config=cluster.yaml
[ -z "${GPU:-}" ] || overlay=kind-gpu config=cluster-gpu.yaml
mapfile -t images < <(sed -n 's/^\(DATA\|TRAINER\)_IMAGE = "\(.*\)"$/\2/p' components/images.py)

num_missing=0
missing() {
    echo "kind-up: $1" >&2
    num_missing=$((num_missing + 1))
}

check_tools() {
    local tool
    command -v docker >/dev/null || missing "docker is not installed; install Docker Engine 24 or newer"
    for tool in kind kubectl git make; do
        command -v "$tool" >/dev/null || missing "$tool is not installed; put it on the PATH"
    done
    [ -z "${GPU:-}" ] || command -v helm >/dev/null || missing "helm is not installed; GPU=1 installs GPU nodes with it"
}

check_engine() {
    local bytes image
    if ! bytes=$(timeout 20 docker info --format '{{.MemTotal}}' 2>/dev/null); then
        missing "the Docker engine does not answer; start it, or join the group docker"
        return
    fi
    [ "$((bytes >> 30))" -ge "$((MIN_MEMORY_GIB - 1))" ] \
        || missing "the Docker engine has $((bytes >> 30)) GiB of memory; give it $MIN_MEMORY_GIB"
    for image in "${images[@]}"; do
        docker image inspect "$image" >/dev/null 2>&1 || missing "the image $image is not built; run make images"
    done
}

kube() { kubectl --context "kind-$CLUSTER" "$@"; }

apply() { kube apply --server-side --force-conflicts "$@"; }

random_word() { head -c 24 /dev/urandom | base64 | tr -d '/+=\n'; }

# new_secret NAME KEY=VALUE...: the values go through a pipe; no file, no argument of a process and no log has them.
new_secret() {
    local name=$1 pair
    if kube --namespace "$NAMESPACE" get secret "$name" >/dev/null 2>&1; then return; fi
    shift
    {
        printf 'apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\nstringData:\n' "$name" "$NAMESPACE"
        for pair in "$@"; do printf '  %s: "%s"\n' "${pair%%=*}" "${pair#*=}"; done
    } | kube create -f -
}

make_cluster() {
    # Pods of several users write to it, on this machine only.
    mkdir -p .thawline/kind/logs
    chmod 0777 .thawline/kind
    if ! kind get clusters 2>/dev/null | grep -qx "$CLUSTER"; then
        kind create cluster --config "manifests/kind/$config" --wait 180s
    fi
    kind load docker-image "${images[@]}" --name "$CLUSTER"
}

install_parts() {
    apply -f manifests/base/namespace.yaml
    apply -k manifests/kfp/cluster-scoped
    apply -k manifests/kubeflow-trainer
    kube wait --for=condition=Established --timeout=120s crd --all
    # Its webhook judges our runtimes.
    kube --namespace kubeflow-system wait --for=condition=Available --timeout=600s deployment --all
    new_secret postgresql "password=$(random_word)"
    new_secret mysql-secret username=root "password=$(random_word)"
    new_secret mlpipeline-minio-artifact "accesskey=$(random_word)" "secretkey=$(random_word)"
    apply -k "manifests/overlays/$overlay"
    apply -k manifests/kfp
    [ -z "${GPU:-}" ] || install_gpus
    kube --namespace "$NAMESPACE" rollout status statefulset/postgresql --timeout=600s
    kube --namespace "$NAMESPACE" wait --for=condition=Available --timeout=1200s deployment --all
}

install_gpus() {
    local operator=(oci://ghcr.io/run-ai/fake-gpu-operator/fake-gpu-operator --version "$FAKE_OPERATOR")
    if [ "$(docker info --format '{{.DefaultRuntime}}')" = nvidia ]; then
        operator=(gpu-operator --repo https://helm.ngc.nvidia.com/nvidia --version "$NVIDIA_OPERATOR"
            --set driver.enabled=false)
    else
        echo "kind-up: Docker's default runtime is not nvidia, so the GPUs are fake: they schedule, and compute nothing" >&2
    fi
    helm upgrade --install gpu-operator "${operator[@]}" --kube-context "kind-$CLUSTER" \
        --namespace gpu-operator --create-namespace --wait --timeout 15m
}

check_gpus() {
    kube --namespace "$NAMESPACE" delete trainjob gpu-check --ignore-not-found
    kube create -f manifests/kind/gpu-check.yaml
    kube --namespace "$NAMESPACE" wait --for=condition=Complete --timeout=600s trainjob/gpu-check
}

run_demo() {
    make --no-print-directory .thawline/logs/complete_journey
    cp -R .thawline/logs/complete_journey .thawline/kind/logs/
    chmod -R a+rX .thawline/kind/logs
    # Not through kube(): a function's shell would be what is killed, and the forward would live on.
    kubectl --context "kind-$CLUSTER" --namespace "$NAMESPACE" port-forward service/ml-pipeline "$PORT:8888" >/dev/null &
    forward=$!
    trap 'kill "$forward" 2>/dev/null' EXIT
    .venv/bin/thawline retrain --runner cluster --endpoint "http://127.0.0.1:$PORT" \
        --recipe complete_journey --date 2017-11-21 --set logs.uri=/store/logs/complete_journey
}

check_tools
[ "$num_missing" -gt 0 ] || check_engine
[ "$num_missing" -eq 0 ] || exit 2
make_cluster
install_parts
if [ -n "${GPU:-}" ]; then check_gpus; else run_demo; fi
echo "kind-up: done; kubectl --context kind-$CLUSTER --namespace $NAMESPACE get pods"
