"""After all others: how many faults there were. Alone it has nothing to count, and says so."""

import pytest

from tests.faults import ledger

pytestmark = pytest.mark.faults


def test_there_were_enough_faults_to_mean_something() -> None:
    assert ledger.injected.total() >= ledger.LEAST, f"run all of tests/faults in one process; {ledger.summary()}"
