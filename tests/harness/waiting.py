"""Waiting for what must come. Nothing else in these tests sleeps."""
import time

PATIENCE = 60.0  # seconds; for what takes milliseconds on a good machine


class ProgramError(Exception):
    """A program ended with an exit status other than 0."""

    def __init__(self, command, status, out="", err=""):
        self.command, self.status, self.out, self.err = command, status, out, err
        super().__init__(f"{command} ended with status {status}: {(err or out).strip()}")


def eventually(look, patience=PATIENCE):
    """Calls look() until it returns something true, and returns that. An AssertionError or a
    ProgramError of look() means "not yet"; the last one is the reason if nothing comes."""
    __tracebackhide__ = True
    end = time.monotonic() + patience
    rest = 0.005
    while True:
        try:
            if seen := look():
                return seen
            reason = f"it is still {seen!r}"
        except (AssertionError, ProgramError) as error:
            reason = error
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience:.0f} s: {reason}")
        time.sleep(rest)  # what is waited for needs the processor, too
        rest = min(rest * 1.5, 0.1)


def eventually_is(expected, look, patience=PATIENCE):
    """As eventually(), for a value: a failure shows the last one that came instead."""
    __tracebackhide__ = True

    def equal():
        seen = look()
        assert seen == expected, f"it is still {seen!r}, not {expected!r}"
        return True

    eventually(equal, patience)
