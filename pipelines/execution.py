"""Running a DAG to its end where ``--runner`` says."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.report_run.reporting import read_end
from components.run import Run
from pipelines.errors import RunFailedError
from pipelines.options import server_of, tracking_uri_of
from trainer.errors import InputError
from trainer.storage.preflight import preflight

if TYPE_CHECKING:
    from pipelines.cluster.runs import Submission


def execute(
    dag: str,
    run: Run,
    arguments: argparse.Namespace,
    *,
    folder: Path,
    totals: Mapping[str, int] | None = None,
    **parameters: Any,
) -> "Submission | None":
    """Runs a DAG and returns when it is done.

    Args:
        dag: One of ``pipelines.catalog.DAGS``.
        run: Recipe, date and store.
        arguments: Of a verb that has the options of ``pipelines.options.add_store_options``.
        folder: Where its records lie.
        totals: How many parts a step will have, where that is known.
        **parameters: The DAG's own parameters.

    Returns:
        The run on the cluster, where that is where it ran.

    Raises:
        InputError: A step met a user's mistake, or the log, the store or the runner is not there.
        StorageError: The bucket of the log or of the store did not answer.
        RunFailedError: A step failed otherwise.
    """
    if arguments.runner == "cluster":
        return _on_cluster(dag, run, arguments, folder, parameters)
    preflight(run.recipe.logs.uri, writable=False)
    preflight(run.store, writable=True)
    from pipelines.catalog import DAGS
    from pipelines.places import OnThisMachine
    from pipelines.runners.local import run_locally

    run_locally(
        DAGS[dag](OnThisMachine()),
        run,
        tracking_uri_of(arguments, run.store),
        runner=arguments.runner,
        folder=folder,
        totals=totals,
        **parameters,
    )
    return None


def tell_of(submission: "Submission", what: str, path: Path, as_json: bool) -> None:
    """Says where the result of a run lies on a cluster whose store is not mounted here.

    Args:
        submission: The run.
        what: What its result is called.
        path: Where it lies, as the cluster's pods see it.
        as_json: Whether for scripts.
    """
    if as_json:
        print(json.dumps({"run": submission.run_id, "page": submission.page, what: str(path)}))
    else:
        print(f"{what}: {path} on the cluster")


def _on_cluster(
    dag: str, run: Run, arguments: argparse.Namespace, folder: Path, parameters: dict[str, Any]
) -> "Submission":
    from pipelines.cluster.client import Client
    from pipelines.cluster.following import follow
    from pipelines.cluster.runs import submit
    from pipelines.cluster.uploads import ensure_version

    client = Client(server_of(arguments))
    version = ensure_version(client, dag, run.recipe)
    submission = submit(client, dag, run, version, again=arguments.again, parameters=parameters)
    verdict = "submitted" if submission.is_new else f"there already ({submission.state.lower()})"
    print(f"{submission.name}: {verdict}, {submission.page}", file=sys.stderr, flush=True)
    try:
        follow(client, submission, version.steps)
    except RunFailedError:
        # Where the store is mounted here too, its own account of the end says more.
        end = read_end(folder)
        if end is not None and end.is_mistake:
            raise InputError(end.error) from None
        raise
    return submission
