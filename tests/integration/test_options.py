"""Options and settings that are wrong get one sentence, and an exit status."""
import re
import signal

import pytest

from harness.places import BIN
from harness.program import run
from harness.waiting import ProgramError, eventually, eventually_is

TEST = {"tenured": ("--test", "--config"), "tenure-core": ("--test", "--config-file")}


def refusal(program, *words):
    with pytest.raises(ProgramError) as refused:
        run(BIN / program, *words)
    assert (refused.value.status, refused.value.out) == (1, "")
    return refused.value.err


@pytest.fixture
def settings(tmp_path):
    """The file of the settings that are written to it."""
    return tmp_path / "settings.conf"


@pytest.mark.parametrize("program, word, what", [
    ("tenured", "--nonsense", "option"), ("tenure-core", "--nonsense", "option"),
    ("tenurectl", "--nonsense", "option"), ("tenurectl", "dance", "command")])
def test_an_unknown_word_is_refused_by_name(program, word, what):
    assert refusal(program, word) == f"{program}: unknown {what} '{word}'; see {program} --help.\n"


@pytest.mark.parametrize("program, word, meant", [
    ("tenured", "--enpoints=x", "endpoints"), ("tenure-core", "--data-dri", "data-dir"),
    ("tenurectl", "--no-legends", "no-legend")])
def test_an_option_that_is_nearly_one_is_suggested(program, word, meant):
    assert refusal(program, word) == (
        f"{program}: unknown option '{word}'; the most similar one is --{meant}.\n")


@pytest.mark.parametrize("program", ["tenured", "tenure-core", "tenurectl"])
@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_that_cannot_be_written_is_an_error(program, word):
    with pytest.raises(ProgramError) as refused:
        run("sh", "-c", 'exec "$@" >/dev/full', "sh", BIN / program, word)
    assert (refused.value.status, refused.value.err) == (
        1, f"{program}: cannot write to standard output: No space left on device.\n")


@pytest.mark.parametrize("program, text, said", [
    ("tenured", "[Agent]\nTTL=3s\nNonsense=1\n", ":3: unknown key 'Nonsense' in [Agent]"),
    ("tenure-core", "[Core]\nName=n1\n\n[Clients]\nListenClientURL=x\n",
     ":5: unknown key 'ListenClientURL' in [Clients]")])
def test_an_unknown_setting_is_refused_with_file_line_and_section(settings, program, text, said):
    settings.write_text(text)
    assert f"{settings}{said}" in refusal(program, *TEST[program], settings)


@pytest.mark.parametrize("words, sentence", [
    (["--name", "x", "--initial-cluster", "a=http://127.0.0.1:1"], "does not name this replica"),
    (["--data-dir="], "--data-dir must not be empty"),
    (["--listen-peer-urls", "http://10.0.0.1:2380"], "AllowPlaintextPeers=yes"),
    (["--name", "a", "--initial-cluster", "a=http://10.0.0.1:2380,b=http://10.0.0.2:2380"],
     "--initial-cluster: http://10.0.0.1:2380 .*AllowPlaintextPeers=yes"),
    (["--name", "a", "--initial-cluster", "a=https://10.0.0.1:2380"], "needs --peer-cert-file"),
    (["--peer-cert-allowed-cn", "a", "--peer-cert-allowed-hostname", "b"], "choose one"),
])
def test_settings_of_a_replica_that_cannot_be_are_refused(words, sentence):
    assert re.search(sentence, refusal("tenure-core", "--test", *words))


def test_a_name_of_the_greatest_length_is_in_the_cluster_that_is_made_of_it():
    name = "n" * 127
    assert f"InitialCluster={name}=" in run(BIN / "tenure-core", "--test", "--name", name)


@pytest.mark.parametrize("program, settings_of_it, printed", [
    ("tenured", ["--test", "--config", "{file}"], "TTL=3s"),
    ("tenure-core", ["-t", "--name", "n1"], "Name=n1")])
def test_settings_that_were_checked_and_printed_are_read_as_the_same(
        settings, program, settings_of_it, printed):
    settings.write_text("[Agent]\nTTL=3s\nNodeName=h1\nTags=zone=a\n")
    first = run(BIN / program, *(word.format(file=settings) for word in settings_of_it))
    settings.write_text(first)

    assert printed in first.splitlines()
    assert run(BIN / program, *TEST[program], settings) == first


@pytest.mark.parametrize("program", TEST)
@pytest.mark.parametrize("path, why", [("/tmp", "Is a directory"),
                                       ("/proc/self/mem", "Input/output error")])
def test_settings_that_cannot_be_read_are_not_taken_for_none(program, path, why):
    assert refusal(program, *TEST[program], path) == f"{program}: {path}: cannot read: {why}.\n"


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
