"""DAGs on a cluster that runs Kubeflow Pipelines: uploaded, run, followed and scheduled over its v2beta1 API."""
