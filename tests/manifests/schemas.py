"""Shapes of custom resources, closed: a field that is not listed is a mistake.

Facts about published APIs, written down anew and only for the fields that our manifests use (a new field wants a look
at the source first). All three sources are under the Apache License 2.0:

- Kubeflow Trainer v2.3.0, github.com/kubeflow/trainer, manifests/base/crds: trainer.kubeflow.org/v1alpha1
- External Secrets v2.9.0, github.com/external-secrets/external-secrets, config/crds/bases: external-secrets.io/v1
- Prometheus operator v0.93.0, github.com/prometheus-operator/prometheus-operator, example/prometheus-operator-crd:
  monitoring.coreos.com/v1

Pods within them are Kubernetes' own and judged by its schemas, see `test_validity`.
"""

from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
OBJECT: Schema = {"type": "object"}
NAME: Schema = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"}
DURATION: Schema = {
    "type": "string",
    "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
}
QUANTITY: Schema = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"}


def closed(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """An object of these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def list_of(items: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": items}


def map_of(values: Schema) -> Schema:
    """An object with keys of one's own."""
    return {"type": "object", "additionalProperties": values}


def one_of(*values: str) -> Schema:
    """One of some words."""
    return {"enum": list(values)}


LABELS = map_of(STRING)
METADATA = closed(("name",), name=NAME, namespace=NAME, labels=LABELS, annotations=LABELS)
SELECTOR = closed(
    matchLabels=LABELS,
    matchExpressions=list_of(closed(("key", "operator"), key=STRING, operator=STRING, values=list_of(STRING))),
)


def resource(api: str, kind: str, spec: Schema) -> Schema:
    """A custom resource without what its controller writes to it."""
    return closed(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion=one_of(api),
        kind=one_of(kind),
        metadata=METADATA,
        spec=spec,
    )


_TRAINER = "trainer.kubeflow.org/v1alpha1"
_RUNTIME = closed(
    mlPolicy=closed(numNodes=COUNT, torch=closed()),
    template=closed(
        metadata=closed(labels=LABELS, annotations=LABELS),
        spec=closed(
            failurePolicy=closed(
                maxRestarts=COUNT, restartStrategy=one_of("Recreate", "BlockingRecreate", "InPlaceRestart")
            ),
            network=closed(enableDNSHostnames=BOOLEAN, publishNotReadyAddresses=BOOLEAN, subdomain=STRING),
            replicatedJobs=list_of(
                closed(
                    ("name", "template"),
                    name=NAME,
                    replicas=COUNT,
                    template=closed(metadata=closed(labels=LABELS, annotations=LABELS), spec=OBJECT),
                )
            ),
        ),
    ),
)
_TRAIN_JOB = closed(
    ("runtimeRef",),
    runtimeRef=closed(("name",), apiGroup=STRING, kind=one_of("TrainingRuntime", "ClusterTrainingRuntime"), name=NAME),
    suspend=BOOLEAN,
    activeDeadlineSeconds=COUNT,
    trainer=closed(
        image=STRING,
        command=list_of(STRING),
        args=list_of(STRING),
        env=list_of(closed(("name",), name=STRING, value=STRING)),
        numNodes=COUNT,
        numProcPerNode=COUNT,
        resourcesPerNode=closed(requests=map_of(QUANTITY), limits=map_of(QUANTITY)),
    ),
)

_SECRETS = "external-secrets.io/v1"
_STORE_REF = closed(kind=one_of("SecretStore", "ClusterSecretStore"), name=NAME)
_SECRET_STORE = closed(
    ("provider",),
    provider={
        **closed(
            gcpsm=closed(
                projectID=STRING,
                location=STRING,
                auth=closed(
                    workloadIdentity=closed(
                        ("serviceAccountRef",),
                        clusterLocation=STRING,
                        clusterName=STRING,
                        clusterProjectID=STRING,
                        serviceAccountRef=closed(("name",), name=NAME, namespace=NAME, audiences=list_of(STRING)),
                    )
                ),
            )
        ),
        "minProperties": 1,
        "maxProperties": 1,
    },
)
_EXTERNAL_SECRET = closed(
    refreshInterval=DURATION,
    refreshPolicy=one_of("CreatedOnce", "Periodic", "OnChange"),
    secretStoreRef=_STORE_REF,
    target=closed(
        name=NAME,
        creationPolicy=one_of("Owner", "Orphan", "Merge", "None", "CreateOrMerge"),
        deletionPolicy=one_of("Delete", "Merge", "Retain"),
        immutable=BOOLEAN,
    ),
    data=list_of(
        closed(
            ("secretKey", "remoteRef"),
            secretKey={"type": "string", "pattern": "^[-._a-zA-Z0-9]+$"},
            remoteRef=closed(("key",), key=STRING, property=STRING, version=STRING),
        )
    ),
)

_MONITORING = "monitoring.coreos.com/v1"
_PROMETHEUS_RULE = closed(
    groups=list_of(
        closed(
            ("name",),
            name=STRING,
            interval=DURATION,
            rules=list_of(
                closed(
                    ("expr",),
                    alert=STRING,
                    expr=STRING,
                    **{"for": DURATION},
                    keep_firing_for=DURATION,
                    labels=LABELS,
                    annotations=LABELS,
                )
            ),
        )
    )
)
_POD_MONITOR = closed(
    ("selector",),
    selector=SELECTOR,
    namespaceSelector=closed(any=BOOLEAN, matchNames=list_of(NAME)),
    podTargetLabels=list_of(STRING),
    podMetricsEndpoints=list_of(
        closed(
            port=STRING,
            path=STRING,
            interval=DURATION,
            scrapeTimeout=DURATION,
            relabelings=list_of(
                closed(
                    sourceLabels=list_of(STRING),
                    regex=STRING,
                    action=one_of("replace", "keep", "drop", "labelmap", "labeldrop", "labelkeep"),
                    targetLabel=STRING,
                    replacement=STRING,
                )
            ),
        )
    ),
)

CUSTOM_RESOURCES: dict[tuple[str, str], Schema] = {
    (api, kind): resource(api, kind, spec)
    for api, kind, spec in (
        (_TRAINER, "TrainingRuntime", _RUNTIME),
        (_TRAINER, "TrainJob", _TRAIN_JOB),
        (_SECRETS, "SecretStore", _SECRET_STORE),
        (_SECRETS, "ExternalSecret", _EXTERNAL_SECRET),
        (_MONITORING, "PrometheusRule", _PROMETHEUS_RULE),
        (_MONITORING, "PodMonitor", _POD_MONITOR),
    )
}
"""By API version and kind."""
