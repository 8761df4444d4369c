"""The script of the PostgreSQL recipe when something fails in the middle. Everything around it is
played; hosts/test_recipes.py runs the whole recipe, on real hosts."""
import re
import signal

import pytest

from harness.places import TOP
from harness.program import Daemon, run
from harness.waiting import ProgramError, eventually

# Each notes in `did` what it is asked for, as far as a test looks at it.
PLAYED = {
    "pg_conftool": 'case $5 in data_directory) echo "$D/data" ;; *) echo 5433 ;; esac',
    "setpriv": 'while :; do case $1 in --*) shift ;; *) break ;; esac; done; exec "$@"',
    # A promotion takes effect when the file is there, and goes on if nobody waits for it.
    "psql": """case $* in *pg_promote*) ;; *) exit 0 ;; esac
        echo promote >>"$D/did"
        [ -e "$D/promotes" ] || exec sleep 36000
        cat "$D/promotes"; ! grep -q t "$D/promotes" || rm -f "$D/data/standby.signal" """,
    "etcdctl": """case $1 in get) cat "$D/last" ;; put) echo put >>"$D/did"
        [ ! -e "$D/put-fails" ] && echo "$3" >"$D/last" ;; esac""",
    "tenurectl": "exec sleep 36000",
    "busctl": """echo 's "held"'""",
    "pg_ctlcluster": 'echo "$*" >>"$D/did"; case $* in *fast*) [ ! -e "$D/fast-fails" ] ;; esac',
    "pg_rewind": 'echo rewind >>"$D/did"',
    # As PostgreSQL's own speaks.
    "pg_controldata": """case ${LC_ALL:-$LANG} in
        C*) echo "Latest checkpoint's TimeLineID:          $(cat "$D/timeline")" ;;
        *) echo "TimeLineID des letzten Checkpoints:          $(cat "$D/timeline")" ;; esac""",
}


class Host:
    """@timeline: of its data. @last: the latest one that the core knows of. @promotes: "t" if a
    promotion succeeds, "f" if not; it does not end if that is not given."""

    def __init__(self, folder, timeline, last, promotes=None):
        self.folder = folder
        for name in "bin", "data", "run":
            (folder / name).mkdir()
        for name, does in PLAYED.items():
            program = folder / "bin" / name
            program.write_text(f"#!/bin/sh\nD={folder}\n{does}\n")
            program.chmod(0o755)
        shipped = (TOP / "conf/examples/postgresql/tenure-postgresql").read_text()
        self.has("script", re.sub("(?m)^bin=.*", f"bin={folder}/bin", shipped).replace(
            "/etc/default/tenure-postgresql", f"{folder}/default").replace(
            "/run/tenure", f"{folder}/run/tenure"))
        self.has("default", 'SOURCE="host=db1"\nETCDCTL_ENDPOINTS=http://127.0.0.1:1')
        self.has("timeline", timeline)
        self.has("last", last)
        self.has("did", "")
        self.standby = folder / "data/standby.signal"
        self.standby.touch()
        if promotes:
            self.has("promotes", promotes)
        postmaster = Daemon(folder / "postmaster.log", "sleep", "36000").start()
        self.has("data/postmaster.pid", postmaster.pid)

    def has(self, name, what=""):
        (self.folder / name).write_text(f"{what}\n" if what != "" else "")

    def did(self):
        return (self.folder / "did").read_text()

    def stopped(self, how=""):
        return re.search(f"-m {how}.*stop", self.did())

    def _script(self, what, language="C.UTF-8"):
        return ["env", "LC_ALL=", f"LANG={language}", f"PATH={self.folder}/bin:/usr/bin:/bin", "sh",
                self.folder / "script", what, "15-main"]

    def run(self, what):
        """The exit status, and what the script says."""
        try:
            return 0, run(*self._script(what))
        except ProgramError as error:
            return error.status, error.err

    def lead(self, until=lambda: True, language="C.UTF-8"):
        """Begins to lead, and waits until()."""
        self.leading = Daemon(self.folder / "lead.log", *self._script("lead", language))
        self.leading.ends_by = signal.SIGKILL
        self.leading.start()
        eventually(until)
        return self.leading

    def leads(self):
        assert self.leading.is_running, self.leading.text()
        core = (self.folder / "last").read_text()
        return core == (self.folder / "timeline").read_text() and "Primary" in self.leading.text()


@pytest.fixture
def host(tmp_path):
    return lambda *given, **more: Host(tmp_path, *given, **more)


@pytest.mark.parametrize("timeline", [1, ""])  # older; of unknown age
@pytest.mark.parametrize("language", ["C.UTF-8", "de_DE.UTF-8"])
def test_a_host_whose_data_may_be_old_never_leads_in_any_locale(
        host, timeline, language):
    db = host(timeline, 2, promotes="t")
    lead = db.lead(language=language)
    eventually(lambda: "promote" in db.did() or not lead.is_running)
    assert "promote" not in db.did()
    assert lead.wait() == 1 and "not leading" in lead.text()


def test_data_of_unknown_age_are_not_started_as_a_standby_that_could_lead(host):
    db = host("", 2)
    db.standby.unlink()
    assert db.run("prepare")[0] == 1 and not db.standby.exists()


def test_a_primary_that_is_asked_to_stop_sends_everything_to_its_standbys(host):
    db = host(2, 2, promotes="t")
    assert db.lead(db.leads).stop() == 0
    assert db.stopped("fast") and "immediate" not in db.did()


def test_a_primary_that_does_not_stop_so_in_time_is_stopped_at_once(host):
    db = host(2, 2, promotes="t")
    db.has("fast-fails")
    db.lead(db.leads).stop()
    assert db.stopped("immediate")
    assert re.search("fast.*-t 1[05]$", db.did(), re.M)  # shorter than a switchover's time


# A promotion that nobody wants any more would make a primary later.

def test_a_stop_during_a_promotion_stops_the_cluster_first(host):
    db = host(2, 2)
    db.lead(lambda: "promote" in db.did()).stop()
    assert db.stopped()


def test_the_unit_stops_the_cluster_if_the_script_was_killed_during_a_promotion(host):
    db = host(2, 2)
    db.lead(lambda: "promote" in db.did()).kill()
    db.run("yield")
    assert db.stopped("immediate")


def test_a_promotion_that_postgresql_gives_up_is_a_failure_and_stops_the_cluster(host):
    db = host(2, 2, promotes="f")
    assert db.lead().wait() == 1
    assert db.stopped()
    db.has("did")
    assert (db.run("prepare")[0], db.run("yield")[0], db.did()) == (0, 0, "")  # a standby now


@pytest.fixture
def died(host):
    """It was a primary on timeline 3, and has died before the core had that."""
    db = host(2, 2, promotes="t")
    db.has("put-fails")
    db.lead(lambda: "put" in db.did()).kill()
    db.has("timeline", 3)
    db.has("did")
    return db


@pytest.mark.parametrize("last", [3, 4])
def test_a_primary_unknown_to_the_core_is_not_started_once_another_has_led(died, last):
    """Its timeline may only look like the one of that number in the other's history."""
    died.has("last", last)
    status, said = died.run("prepare")
    assert (status, died.did()) == (1, "") and "pg_basebackup" in said


def test_a_primary_unknown_to_the_core_is_started_if_nobody_else_has_led(died):
    died.has("last", 2)
    assert died.run("prepare")[0] == 0 and died.standby.exists()


def test_a_primary_that_died_before_its_promotion_is_started(died):
    died.standby.unlink(missing_ok=True)
    died.has("timeline", 2)
    died.has("last", 3)
    assert died.run("prepare")[0] == 0


def test_a_primary_that_the_core_knows_is_wound_back_when_another_has_led(host):
    db = host(2, 2, promotes="t")
    db.lead(db.leads).kill()
    db.has("last", 3)
    db.has("did")
    assert (db.run("prepare")[0], db.did()) == (0, "rewind\n")
    assert not list(db.folder.glob("*unrecorded*"))


def test_a_core_that_does_not_answer_is_asked_until_it_has_the_timeline(host):
    db = host(2, 2, promotes="t")
    db.has("put-fails")
    lead = db.lead(lambda: db.did().count("put") >= 2)
    (db.folder / "put-fails").unlink()
    eventually(db.leads)
    lead.stop()
    assert db.stopped()
