import io
from shutil import get_terminal_size

from components.step import State, StepEvent
from pipelines.console import Console


class Terminal(io.StringIO):
    def __init__(self, is_live: bool) -> None:
        super().__init__()
        self._is_live = is_live

    def isatty(self) -> bool:
        return self._is_live


def event(step: str, state: State, part: str = "") -> str:
    found = StepEvent(step=step, part=part, state=state, started_at_s=0.0, duration_s=1.25, peak_rss_mib=1.0)
    return f"    {found.to_line()}\n"


def console(is_live: bool = False) -> tuple[Console, io.StringIO, Terminal]:
    log, terminal = io.StringIO(), Terminal(is_live)
    return Console(log, terminal), log, terminal


def test_noise_goes_to_the_log_alone() -> None:
    stream, log, terminal = console()
    print("kfp says much", file=stream)
    assert log.getvalue() == "kfp says much\n"
    assert terminal.getvalue() == ""


def test_a_step_is_one_line_as_it_ends() -> None:
    stream, _, terminal = console()
    stream.write(event("train", "started"))
    assert terminal.getvalue() == ""
    text = event("train", "finished")
    stream.write(text[:20])
    stream.write(text[20:])
    assert terminal.getvalue().split() == ["train", "1.2", "s"]


def test_days_are_counted_on_one_line() -> None:
    stream, _, terminal = console()
    for day in ("2024-01-01", "2024-01-02"):
        stream.write(event("prepare_day", "started", day))
        stream.write(event("prepare_day", "finished", day))
    stream.write(event("assemble_window", "started", "window"))
    assert terminal.getvalue().startswith("  prepare_day (2 days)")
    assert terminal.getvalue().count("\n") == 1


def test_cases_are_counted_beside_the_progress_of_one() -> None:
    terminal = Terminal(is_live=True)
    stream = Console(io.StringIO(), terminal, totals={"train_arm": 12})
    stream.write(event("train_arm", "started", "delayed-10d-seed0"))
    stream.write(event("train_arm", "started", "delayed-10d-seed1"))
    stream.write(event("train_arm", "finished", "delayed-10d-seed0"))
    print("train (delayed)  50% loss 0.4 1,000 rows/s frozen", file=stream)
    last = terminal.getvalue().split("\r")[-1]
    assert "train_arm (1 of 12 cases)" in last and "train (delayed)" in last
    assert len(last) < get_terminal_size().columns + len("\x1b[K")


def test_a_failed_step_is_named() -> None:
    stream, _, terminal = console()
    stream.write(event("prepare_day", "started", "2024-01-01"))
    stream.write(event("prepare_day", "failed", "2024-01-01"))
    assert stream.failed_step == "prepare_day 2024-01-01"
    assert "failed" in terminal.getvalue()


def test_progress_is_redrawn_on_a_terminal_and_thinned_elsewhere() -> None:
    for is_live, times in ((True, 5), (False, 1)):
        stream, _, terminal = console(is_live)
        for _ in range(5):
            print("train  50% loss 0.4 1,000 rows/s frozen", file=stream)
        assert terminal.getvalue().count("rows/s") == times
