"""What was started, by whom, and what must not have happened to it.

Every program enters itself here when it starts. At the end of a test, settle() ends what the test
has left running and returns what is wrong: a program that died of a signal that the test did not
send, that ended with an exit status which nobody asked for, or with whom a sanitizer found fault.
So a fixture only has to start things, and one that fails half-way leaves nothing behind.
"""
import contextlib
import re

from . import strays

SANITIZER = re.compile(r"ERROR: (?:Address|Leak)Sanitizer|runtime error:|WARNING: ThreadSanitizer")
TAIL = 25  # lines of each log that a report has

_mine = []       # programs that the test that runs has started, or uses
_lasting = []    # programs that outlive a test
_lasts = None    # those that are being started
_complaints = []
_failed = False  # the test that runs


def begin():
    global _failed
    _failed = False
    _mine.clear()


def enter(program):
    programs = _mine if _lasts is None else _lasts
    if program not in programs:
        programs.append(program)


@contextlib.contextmanager
def lasting():
    """What is started in this context, and is in the list that it gives, lasts for the session."""
    global _lasts
    _lasts = []
    try:
        yield _lasts
    finally:
        _lasting.extend(_lasts)
        _mine.extend(_lasts)
        _lasts = None


def use(programs):
    """The test that runs uses these lasting programs: what is wrong with them, it has done."""
    _mine.extend(program for program in programs if program not in _mine)


def complain(text):
    if text not in _complaints:
        _complaints.append(text)


def suspicious(name, text):
    """Complains if a sanitizer speaks in this text of the program's."""
    if found := SANITIZER.search(text):
        line = text[text.rfind("\n", 0, found.start()) + 1:].split("\n", 1)[0]
        complain(f"{name}: {line.strip()}")


def note_failure():
    """The test that runs has failed. Returns (name, end of the log) of each of its programs."""
    global _failed
    _failed = True
    texts = {program.log: program.log_text().splitlines() for program in _mine}
    return [(log.name, "\n".join(lines[-TAIL:])) for log, lines in texts.items() if lines]


def failed():
    return _failed


def settle():
    """The end of a test: returns the complaints."""
    _end([program for program in _mine if program not in _lasting])
    strays.end({program.pid for program in _lasting})
    return _judge(_mine)


def settle_session():
    _end(_lasting)
    return _judge(_lasting)


def _end(programs):
    for program in reversed(programs):
        program.ask_to_end()
    for program in reversed(programs):
        program.end()


def _judge(programs):
    for program in programs:
        program.judge()
    found = _complaints.copy()
    _complaints.clear()
    return found
