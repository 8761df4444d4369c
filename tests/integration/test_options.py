"""Options and settings that are wrong get one sentence, and an exit status."""
import pytest

from harness.places import BIN
from harness.program import run
from harness.waiting import ProgramError


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
