"""What we demand of objects, as plain functions: each names what breaks a rule, and nothing when all is well."""

import re
from collections.abc import Callable, Iterator

from tests.manifests.objects import Object, Objects, all_pods, by_name, name_of, of_kind

Policy = Callable[[Objects], Iterator[str]]

NEEDS_TOKEN = frozenset({"thawline-step"})
"""Accounts whose pods ask the cluster's API for something."""
CALLED_FROM_ANYWHERE = frozenset({"cache-webhook"})
"""Network policies that let everyone in: the API server has no label to select it by."""
DISRUPTED_AT_WILL = frozenset({"thawline-exporter"})
"""Long-lived pods without a disruption budget: nobody waits for them."""

_SECRET_NAME = re.compile(r"password|passwd|secret|token|credential|(access|private|api)_?key", re.IGNORECASE)
_REFERS = re.compile(r"(_FILE|_NAME|_PATH)$")
_PASSWORD_IN_URI = re.compile(r"://[^/\s:@]+:[^/\s@]+@")
_ALLOWED_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret", "downwardAPI", "csi"}
_WRITING = {"create", "update", "patch", "delete", "deletecollection", "*"}


def not_root(objects: Objects) -> Iterator[str]:
    """Containers run as a named user that is not root."""
    for pods in all_pods(objects):
        of_pod = pods.spec.get("securityContext", {})
        for name, container in pods.containers():
            context = {**of_pod, **container.get("securityContext", {})}
            if context.get("runAsNonRoot") is not True:
                yield f"{name}: may run as root"
            if not context.get("runAsUser"):
                yield f"{name}: names no user, or root"


def no_privilege(objects: Objects) -> Iterator[str]:
    """No container can gain or keep what the host's root has."""
    for pods in all_pods(objects):
        yield from (f"{pods.name}: {key}" for key in ("hostNetwork", "hostPID", "hostIPC") if pods.spec.get(key))
        for volume in pods.spec.get("volumes", []):
            yield from (f"{pods.name}: volume {kind}" for kind in volume.keys() - {"name"} - _ALLOWED_VOLUMES)
        for name, container in pods.containers():
            context = container.get("securityContext", {})
            if context.get("privileged"):
                yield f"{name}: privileged"
            if context.get("allowPrivilegeEscalation") is not False:
                yield f"{name}: privileges may grow"
            capabilities = context.get("capabilities", {})
            if capabilities.get("drop") != ["ALL"] or capabilities.get("add"):
                yield f"{name}: keeps capabilities"
            yield from (f"{name}: host port" for port in container.get("ports", []) if port.get("hostPort"))


def seccomp(objects: Objects) -> Iterator[str]:
    """The runtime's system call filter is on."""
    for pods in all_pods(objects):
        of_pod = pods.spec.get("securityContext", {})
        for name, container in pods.containers():
            profile = {**of_pod, **container.get("securityContext", {})}.get("seccompProfile", {})
            if profile.get("type") != "RuntimeDefault":
                yield f"{name}: no seccomp profile"


def read_only_root(objects: Objects) -> Iterator[str]:
    """Nothing is written but to volumes, and no volume in memory or on the node's disk is without bound."""
    for pods in all_pods(objects):
        for name, container in pods.containers():
            if container.get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
                yield f"{name}: writable root"
        for volume in pods.spec.get("volumes", []):
            if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
                yield f"{pods.name}: volume {volume['name']} has no size limit"


def pinned_images(objects: Objects) -> Iterator[str]:
    """Images have a tag that stays, or a digest."""
    for pods in all_pods(objects):
        for name, container in pods.containers():
            reference, _, digest = container["image"].partition("@")
            tag = reference.rpartition("/")[2].partition(":")[2]
            if not digest and (not tag or tag == "latest"):
                yield f"{name}: image {container['image']}"


def limited(objects: Objects) -> Iterator[str]:
    """Containers ask for CPU and memory, and have limits of both."""
    for pods in all_pods(objects):
        for name, container in pods.containers():
            for kind in ("requests", "limits"):
                missing = {"cpu", "memory"} - container.get("resources", {}).get(kind, {}).keys()
                yield from (f"{name}: no {resource} in {kind}" for resource in sorted(missing))


def probed(objects: Objects) -> Iterator[str]:
    """What serves says whether it is ready and alive."""
    for found in of_kind(objects, "Deployment", "StatefulSet"):
        for container in found["spec"]["template"]["spec"]["containers"]:
            missing = {"readinessProbe", "livenessProbe"} - container.keys() if container.get("ports") else set()
            yield from (f"{name_of(found)}/{container['name']}: no {probe}" for probe in sorted(missing))


def default_deny(objects: Objects) -> Iterator[str]:
    """Each namespace with pods denies all traffic that no other policy allows."""
    namespaces = {pods.owner["metadata"]["namespace"] for pods in all_pods(objects)}
    denying = {
        found["metadata"]["namespace"]
        for found in of_kind(objects, "NetworkPolicy")
        if found["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    }
    yield from (f"Namespace/{name}: denies nothing" for name in sorted(namespaces - denying))


def narrow_network(objects: Objects) -> Iterator[str]:
    """Allowances name who and on what ports; only the hosts of one training are open to each other."""
    for found in of_kind(objects, "NetworkPolicy"):
        name = found["metadata"]["name"]
        for direction, peer in (("ingress", "from"), ("egress", "to")):
            for rule in found["spec"].get(direction, []):
                if not rule.get(peer) and name not in CALLED_FROM_ANYWHERE:
                    yield f"NetworkPolicy/{name}: {direction} for everyone"
                if any(not place for place in rule.get(peer, [])):
                    yield f"NetworkPolicy/{name}: {direction} for everyone"
                own = [{"podSelector": found["spec"]["podSelector"]}]
                if not rule.get("ports") and rule.get(peer) != own:
                    yield f"NetworkPolicy/{name}: {direction} on every port"


def no_inline_secret(objects: Objects) -> Iterator[str]:
    """No object holds a secret's value."""
    for found in of_kind(objects, "Secret"):
        yield f"{name_of(found)}: in a file"
    for found in of_kind(objects, "ConfigMap"):
        for key, value in found.get("data", {}).items():
            if _SECRET_NAME.search(key) or _PASSWORD_IN_URI.search(value):
                yield f"{name_of(found)}: {key}"
    for pods in all_pods(objects):
        for name, container in pods.containers():
            for variable in container.get("env", []):
                value = variable.get("value", "")
                named = _SECRET_NAME.search(variable["name"]) and not _REFERS.search(variable["name"])
                if value and (named or _PASSWORD_IN_URI.search(value)):
                    yield f"{name}: {variable['name']}"
            words = [*container.get("command", []), *container.get("args", [])]
            if any(_PASSWORD_IN_URI.search(word) or re.search(r"--?password=\S", word) for word in words):
                yield f"{name}: in its command"


def no_idle_token(objects: Objects) -> Iterator[str]:
    """Only who asks the API for something has a token for it, and nobody is the namespace's default account."""
    for found in of_kind(objects, "ServiceAccount"):
        if found["metadata"]["name"] not in NEEDS_TOKEN and found.get("automountServiceAccountToken") is not False:
            yield f"{name_of(found)}: hands out tokens"
    for pods in all_pods(objects):
        account = pods.spec.get("serviceAccountName", "default")
        if account == "default":
            yield f"{pods.name}: names no account"
        elif account not in NEEDS_TOKEN and pods.spec.get("automountServiceAccountToken") is not False:
            yield f"{pods.name}: has a token"


def least_rights(objects: Objects) -> Iterator[str]:
    """Rights are named, end at the namespace, and reach single secrets only."""
    yield from (f"{name_of(found)}: for the whole cluster" for found in of_kind(objects, "ClusterRole"))
    yield from (f"{name_of(found)}: for the whole cluster" for found in of_kind(objects, "ClusterRoleBinding"))
    for found in of_kind(objects, "Role"):
        for rule in found["rules"]:
            if any("*" in rule.get(key, []) for key in ("apiGroups", "resources", "verbs")):
                yield f"{name_of(found)}: everything"
            if "secrets" in rule["resources"] and (not rule.get("resourceNames") or rule["verbs"] != ["get"]):
                yield f"{name_of(found)}: all secrets"
            if {"pods/exec", "pods/attach", "pods/portforward"} & set(rule["resources"]):
                yield f"{name_of(found)}: enters pods"
            if "" in rule["apiGroups"] and _WRITING & set(rule["verbs"]):
                yield f"{name_of(found)}: writes {', '.join(rule['resources'])}"


def restricted(objects: Objects) -> Iterator[str]:
    """Namespaces refuse pods that are not restricted, by a pinned version of the standard."""
    for found in of_kind(objects, "Namespace"):
        labels = found["metadata"].get("labels", {})
        for mode in ("enforce", "audit", "warn"):
            if labels.get(f"pod-security.kubernetes.io/{mode}") != "restricted":
                yield f"{name_of(found)}: {mode} is not restricted"
            if not re.fullmatch(r"v1\.\d+", labels.get(f"pod-security.kubernetes.io/{mode}-version", "")):
                yield f"{name_of(found)}: {mode} has no pinned version"


def shared_memory(objects: Objects) -> Iterator[str]:
    """The ranks of a training share memory, more than a container's own 64 MiB, and that counts as the container's."""
    for found in of_kind(objects, "TrainingRuntime"):
        for pods in all_pods([found]):
            in_memory = {
                volume["name"] for volume in pods.spec.get("volumes", []) if _is_in_memory(volume.get("emptyDir", {}))
            }
            for name, container in pods.containers():
                mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
                if mounts.get("/dev/shm") not in in_memory:
                    yield f"{name}: /dev/shm is not in memory, or without bound"


def _is_in_memory(volume: Object) -> bool:
    return volume.get("medium") == "Memory" and "sizeLimit" in volume


def budgeted(objects: Objects) -> Iterator[str]:
    """A drain of a node minds what serves and what trains."""
    budgets = [found["spec"]["selector"]["matchLabels"] for found in of_kind(objects, "PodDisruptionBudget")]
    for found in of_kind(objects, "Deployment", "StatefulSet", "TrainingRuntime"):
        for pods in all_pods([found]):
            if found["metadata"]["name"] not in DISRUPTED_AT_WILL and not any(
                chosen.items() <= pods.labels.items() for chosen in budgets
            ):
                yield f"{pods.name}: no disruption budget"


def bounded_namespace(objects: Objects) -> Iterator[str]:
    """A namespace has a quota on what pods ask for, and defaults for pods that say nothing."""
    for found in of_kind(objects, "Namespace"):
        name = found["metadata"]["name"]
        quotas = [quota["spec"]["hard"].keys() for quota in of_kind(objects, "ResourceQuota")]
        asked = {"requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "requests.nvidia.com/gpu", "pods"}
        if not any(asked <= hard for hard in quotas):
            yield f"Namespace/{name}: no quota on {', '.join(sorted(asked))}"
        defaults = [limit for limits in of_kind(objects, "LimitRange") for limit in limits["spec"]["limits"]]
        if not any({"default", "defaultRequest"} <= limit.keys() for limit in defaults):
            yield f"Namespace/{name}: no defaults"


def graded(objects: Objects) -> Iterator[str]:
    """A retrain goes before a back-fill, which takes no place from anyone."""
    value = {found["metadata"]["name"]: found["value"] for found in of_kind(objects, "PriorityClass")}
    if not value.get("thawline-retrain", 0) > value.get("thawline-backfill", 0) > 0:
        yield "PriorityClass: thawline-retrain is not above thawline-backfill"
    elif by_name(objects, "PriorityClass", "thawline-backfill").get("preemptionPolicy") != "Never":
        yield "PriorityClass/thawline-backfill: preempts"
    for found in of_kind(objects, "TrainingRuntime"):
        for pods in all_pods([found]):
            if pods.spec.get("priorityClassName") not in value:
                yield f"{pods.name}: no priority"


POLICIES: tuple[Policy, ...] = (
    not_root,
    no_privilege,
    seccomp,
    read_only_root,
    pinned_images,
    limited,
    probed,
    default_deny,
    narrow_network,
    no_inline_secret,
    no_idle_token,
    least_rights,
    restricted,
    shared_memory,
    budgeted,
    bounded_namespace,
    graded,
)
