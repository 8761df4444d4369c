"""Options and settings that are wrong get one sentence, and an exit status."""
import signal

import pytest

from harness.places import BIN
from harness.program import run
from harness.waiting import ProgramError, eventually, eventually_is


@pytest.mark.parametrize("program, words, sentence", [
    ("tenured", ["--nonsense"], "unknown option '--nonsense'; see tenured --help."),
    ("tenure-core", ["--nonsense"], "unknown option '--nonsense'; see tenure-core --help."),
    ("tenurectl", ["--nonsense"], "unknown option '--nonsense'; see tenurectl --help."),
    ("tenurectl", ["dance"], "unknown command 'dance'; see tenurectl --help."),
])
def test_an_unknown_word_is_refused_by_name(program, words, sentence):
    with pytest.raises(ProgramError) as refused:
        run(BIN / program, *words)
    assert (refused.value.status, refused.value.out) == (1, "")
    assert refused.value.err == f"{program}: {sentence}\n"


def test_an_unknown_setting_is_refused_with_file_and_line(tmp_path):
    settings = tmp_path / "tenured.conf"
    settings.write_text("[Agent]\nTTL=3s\nNonsense=1\n")
    with pytest.raises(ProgramError) as refused:
        run(BIN / "tenured", "--test", "--config", settings)
    assert refused.value.status == 1
    assert f"{settings}:3: unknown key 'Nonsense' in [Agent]" in refused.value.err


def test_settings_that_were_checked_and_printed_are_read_as_the_same_settings(tmp_path):
    settings = tmp_path / "tenured.conf"
    settings.write_text("[Agent]\nTTL=3s\nNodeName=h1\nTags=zone=a\n")
    printed = run(BIN / "tenured", "--test", "--config", settings)

    settings.write_text(printed)

    assert "TTL=3s" in printed.splitlines()
    assert run(BIN / "tenured", "--test", "--config", settings) == printed


@pytest.mark.parametrize("program, flag", [("tenured", "--config"),
                                           ("tenure-core", "--config-file")])
@pytest.mark.parametrize("path, why", [("/tmp", "Is a directory"),
                                       ("/proc/self/mem", "Input/output error")])
def test_settings_that_cannot_be_read_are_not_taken_for_none(program, flag, path, why):
    with pytest.raises(ProgramError) as refused:
        run(BIN / program, "--test", flag, path)
    assert (refused.value.status, refused.value.out) == (1, "")
    assert refused.value.err == f"{program}: {path}: cannot read: {why}.\n"


def test_services_stay_while_the_folder_of_their_files_cannot_be_read(agents, tmp_path):
    folder = tmp_path / "entries"
    folder.mkdir()
    (folder / "web.service-entry").write_text("[Service]\nPort=80\n")
    agent = agents("h1", ServicesPath=folder)
    eventually_is(["web"], lambda: [service.name for service in agent.services()])
    watch = agent.watch()
    folder.rename(tmp_path / "away")
    folder.write_text("not a folder")

    agent.signal(signal.SIGHUP)

    eventually(lambda: f"{folder}: cannot read it: Not a directory" in agent.log_text())
    (tmp_path / "away/mail.service-entry").write_text("[Service]\nPort=25\n")
    folder.unlink()
    (tmp_path / "away").rename(folder)
    agent.signal(signal.SIGHUP)
    eventually_is([("ServiceAdded", "mail")],
                  lambda: [(event.event, event.name) for event in watch.events()])
