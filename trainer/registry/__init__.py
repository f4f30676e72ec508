"""MLflow: what was trained, what serves, and why."""

import os

# MLflow reads these when it is first imported. It would otherwise report its use over the network, which a cluster
# without a way out waits for, and draw a bar for every file that it copies.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
