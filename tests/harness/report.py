"""What a run says: logs and a command beside each failure, figures, and the closing line.

A pytest plugin.
"""
import os
import shlex

import pytest

from . import ledger

_exit_status = pytest.StashKey()


@pytest.fixture
def tell(record_property):
    """tell("12 leases"): a line that is printed at the end, whether the test passes or not."""
    return lambda line: record_property("told", line)


def _again(item):
    run = shlex.quote(os.environ.get("CALLED", "tests/run"))
    given = os.environ.get("CALLED_WITH", "")
    options = {name: item.config.getoption(name) for name in ("seed", "seconds", "suite")
               if name in item.fixturenames}
    if "draw" in item.fixturenames:
        options["seed"] = item.callspec.params["draw"]
    return (f"{f'BIN={shlex.quote(given)} ' if given else ''}{run} -n 0 "
            f"{'--night ' if item.get_closest_marker('night') else ''}"
            f"{''.join(f'--{name} {given} ' for name, given in options.items() if given != '')}"
            f"{shlex.quote(item.nodeid)}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        report.sections += ledger.note_failure()
        report.sections.append(("run it again", _again(item)))


def pytest_terminal_summary(terminalreporter):
    for report in (report for kind in ("passed", "failed")
                   for report in terminalreporter.stats.get(kind, []) if report.when == "call"):
        for line in (line for name, line in report.user_properties if name == "told"):
            terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {line}")


def pytest_sessionfinish(session, exitstatus):
    session.config.stash[_exit_status] = exitstatus


def closing_lines(stats, exit_status):
    """`N passed, N failed, N skipped` counts tests, not their phases: one that passed and whose
    programs then turned out to be broken has failed."""
    failed = {report.nodeid for kind in ("failed", "error") for report in stats.get(kind, [])}
    skipped = {report.nodeid: report.longrepr for report in stats.get("skipped", [])}
    passed = {report.nodeid for report in stats.get("passed", []) if report.when == "call"}
    for nodeid, why in sorted(skipped.items()):
        yield f"skipped {nodeid}: {why[2].removeprefix('Skipped: ')}"
    n_failed = len(failed) or int(exit_status != 0)  # interrupted, or nothing was run
    yield f"{len(passed - failed)} passed, {n_failed} failed, {len(skipped)} skipped"


def pytest_unconfigure(config):
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    status = config.stash.get(_exit_status, None)
    if hasattr(config, "workerinput") or not reporter or status is None or \
            config.option.collectonly:
        return
    for line in closing_lines(reporter.stats, status):
        reporter.write_line(line)
