from typing import Any

from pipelines.report import comparison_table, summary_table

SUMMARY: dict[str, Any] = {
    "model": "thawline-x",
    "version": "3",
    "decision": "hold",
    "reasons": ["Save lift: too low."],
    "window": {
        "days": 20,
        "first_day": "2017-10-31",
        "last_day": "2017-11-19",
        "heldout_day": "2017-11-20",
        "rows": 70123,
    },
    "quality": {"verdict": "ok", "findings": 0, "page": "runs/x/quality.html"},
    "metrics": {"save_hit3": 0.5, "hide_auc": None},
    "champion_metrics": None,
    "lift": {},
}


def test_a_first_candidate_stands_alone() -> None:
    table = summary_table(SUMMARY)
    assert "thawline-x version 3: hold" in table
    assert "20 days, 2017-10-31 to 2017-11-19, 70,123 rows; held out 2017-11-20" in table
    assert "0.5000" in table and "n/a" in table and "Save lift: too low." in table
    assert "champion" not in table


def test_the_verdict_on_the_data_is_told_with_its_page() -> None:
    assert "  data      ok: runs/x/quality.html\n" in summary_table(SUMMARY)
    quality = {"verdict": "warn", "findings": 1, "page": "p.html"}
    assert "  data      warn, 1 finding: p.html\n" in summary_table(SUMMARY | {"quality": quality})
    assert "  data      warn, 2 findings: p.html\n" in summary_table(SUMMARY | {"quality": {**quality, "findings": 2}})


def test_a_champion_stands_beside_it_with_the_lift() -> None:
    lift = {"save_hit3": {"point": 0.0116, "low": -0.001, "high": None}}
    table = summary_table(SUMMARY | {"champion_metrics": {"save_hit3": 0.25, "hide_auc": 0.125}, "lift": lift})
    assert "0.2500" in table and "0.1250" in table
    assert "+1.16% [-0.10%, n/a]" in table


def test_a_comparison_is_a_line_an_arm_and_window() -> None:
    lift = {"point": 0.0023, "low": 0.0007, "high": None}
    entry = {"window_days": 20, "metrics": {"save_auc": {"point": 0.9019}}, "lift": {}, "refrozen_at": {}}
    content = {
        "recipe": "feed",
        "baseline": "single_epoch",
        "seeds": [0, 1],
        "confidence": 0.95,
        "hit_k": 3,
        "heldout": {"day": "2017-11-20", "rows": 4000, "users": 700},
        "arms": [
            {**entry, "arm": "single_epoch"},
            {**entry, "arm": "cotrain+guard", "lift": {"save_auc": lift, "save_hit3": lift}, "refrozen_at": {"1": 2}},
        ],
    }
    head, heldout, *_, baseline, guarded, guard = comparison_table(content).splitlines()
    assert head == "feed: arms against single_epoch, 2 seeds"
    assert "2017-11-20, 4,000 rows, 700 users; 95% intervals" in heldout
    assert baseline.split() == ["single_epoch", "20", "0.9019", "baseline", "baseline"]
    assert guarded.count("+0.23% [+0.07%, n/a]") == 2
    assert guard.endswith("cotrain+guard, 20 days, seed 1: refrozen after epoch 2")
