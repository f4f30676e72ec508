"""Alerts parse as PromQL, read metrics that there are, and send people to a section that there is."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from prometheus_client import REGISTRY

from components.exporter import Summaries
from tests.conftest import REPOSITORY
from tests.manifests.objects import Object, by_name, overlay
from trainer import telemetry

pytestmark = pytest.mark.manifests

OF_OTHERS = {
    "kube-state-metrics": {
        "kube_cronjob_status_last_successful_time",
        "kube_deployment_status_replicas_available",
        "kube_pod_container_resource_limits",
        "kube_pod_container_status_terminated_reason",
        "kube_pod_status_unschedulable",
        "kube_statefulset_status_replicas_ready",
    },
    "kubelet": {
        "container_memory_working_set_bytes",
        "kubelet_volume_stats_available_bytes",
        "kubelet_volume_stats_capacity_bytes",
    },
}


def rules() -> list[Object]:
    spec = by_name(overlay("production"), "PrometheusRule", "thawline")["spec"]
    return [rule for group in spec["groups"] for rule in group["rules"]]


RULES = {rule["alert"]: rule for rule in rules()}


def selectors(node: Any) -> Iterator[Any]:
    """The vector selectors of a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    elif isinstance(node, promql_parser.MatrixSelector):
        yield node.vector_selector
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from selectors(node.lhs)
        yield from selectors(node.rhs)
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from selectors(argument)
    elif hasattr(node, "expr"):
        yield from selectors(node.expr)


def read(expression: str) -> set[str]:
    """The metrics that an expression reads."""
    return {selector.name for selector in selectors(promql_parser.parse(expression))}


def served(tmp_path: Path) -> dict[str, set[str]]:
    """Our own metrics, as they are scraped, with their labels."""
    assert telemetry.PORT_VARIABLE  # importing it registers what a training serves
    run = tmp_path / "runs" / "x"
    run.mkdir(parents=True)
    (run / "summary.json").write_text('{"model": "thawline-x", "decision": "hold"}')
    found: dict[str, set[str]] = {}
    for metric in Summaries(tmp_path).collect():
        found |= {sample.name: set(sample.labels) for sample in metric.samples}
    for metric in REGISTRY.collect():
        if metric.name.startswith("thawline_"):
            suffixes = {"counter": ("_total",), "histogram": ("_sum", "_count", "_bucket")}.get(metric.type, ("",))
            found |= {metric.name + suffix: {"recipe", "run"} for suffix in suffixes}
    return found


def test_there_is_an_alert_for_each_failure() -> None:
    assert len(RULES) == len(rules()) >= 10


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_parses_and_reads_what_there_is(alert: str, tmp_path: Path) -> None:
    ours = served(tmp_path)
    names = read(RULES[alert]["expr"])
    assert names
    assert names <= ours.keys() | set().union(*OF_OTHERS.values())
    for name in names & ours.keys():
        grouped = set().union(
            *(re.split(r",\s*", group) for group in re.findall(r"by \(([^)]*)\)", RULES[alert]["expr"]))
        )
        assert grouped <= ours[name], f"{alert} groups {name} by labels that it lacks"


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_tells_what_to_do(alert: str) -> None:
    rule = RULES[alert]
    assert alert.startswith("Thawline")
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"]
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    text = (REPOSITORY / page).read_text()
    headings = {heading.lower() for heading in re.findall(r"^## (\S+)$", text, re.MULTILINE)}
    assert anchor in headings
    assert alert in text, f"{page} does not name {alert}"


def test_a_broken_expression_is_seen() -> None:
    with pytest.raises(ValueError, match="unclosed"):
        promql_parser.parse("sum by (recipe) (thawline_steps_total")
