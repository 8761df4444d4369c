"""Options and settings that are wrong get one sentence, and an exit status."""
import re
import signal

import pytest

from harness.places import BIN, TOP
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


@pytest.mark.parametrize("words, sentence", [
    (["--name", "x", "--initial-cluster", "a=http://127.0.0.1:1"], "does not name this replica"),
    (["--listen-peer-urls", "http://10.0.0.1:2380"], "AllowPlaintextPeers=yes"),
    (["--name", "a", "--initial-cluster", "a=http://10.0.0.1:2380,b=http://10.0.0.2:2380"],
     "--initial-cluster: http://10.0.0.1:2380 .*AllowPlaintextPeers=yes"),
    (["--name", "a", "--initial-cluster", "a=https://10.0.0.1:2380"], "needs --peer-cert-file"),
    (["--peer-cert-allowed-cn", "a", "--peer-cert-allowed-hostname", "b"], "choose one"),
])
def test_settings_of_a_replica_that_cannot_be_are_refused(words, sentence):
    with pytest.raises(ProgramError, match=sentence):
        run(BIN / "tenure-core", "--test", *words)


def test_an_unknown_setting_of_a_replica_is_refused_with_file_line_and_section(tmp_path):
    settings = tmp_path / "core.conf"
    settings.write_text("[Core]\nName=n1\n\n[Clients]\nListenClientURL=x\n")
    with pytest.raises(ProgramError) as refused:
        run(BIN / "tenure-core", "--test", "--config-file", settings)
    assert f"{settings}:5: unknown key 'ListenClientURL' in [Clients]" in refused.value.err


def test_settings_of_a_replica_that_were_printed_are_read_as_the_same_settings(tmp_path):
    settings = tmp_path / "core.conf"
    settings.write_text(run(BIN / "tenure-core", "-t", "--name", "n1"))

    assert run(BIN / "tenure-core", "--test", "--config-file", settings) == settings.read_text()


def test_the_manual_page_of_the_core_has_every_option():
    options = re.findall(r"^  (?:-., |    )?--([a-z-]+)", run(BIN / "tenure-core", "--help"),
                         re.MULTILINE)
    manual = (TOP / "agent/tenure-core/tenure-core.8").read_text()
    assert "initial-cluster" in options
    assert [option for option in options if option not in ("help", "version")
            and f"Fl -{option}" not in manual] == []


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
