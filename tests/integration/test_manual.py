"""What manual pages quote is what programs have: options, defaults, durations, limits,
errors, files.

A sentence that quotes a duration or a default is here, with what it is compared to, or with the
reason why it cannot be; a new one is red until it is, too.
"""
import errno
import os
import re

import pytest
from harness.places import BIN, TOP
from harness.program import run

PAGES = {page.name: page for folder in ("agent/tenured", "agent/tenure-core", "agent/tenurectl",
                                        "lib/tenure")
         for page in (TOP / folder).glob("*.[1-8]")}
SOURCES = [path for folder in ("agent", "lib", "units", "conf")
           for path in (TOP / folder).rglob("*") if path.is_file() and path.name not in PAGES]


def shown(page):
    """The sentences of a page, as mandoc shows it."""
    text = run("mandoc", "-T", "utf8", "-O", "width=999", PAGES[page])
    text = re.sub(".\b", "", text)
    return [sentence for line in text.splitlines()
            for sentence in re.split(r"(?<=[.:;?])  (?=\S)", line.strip())]


def sentences_with(pattern, claimed):
    """Those with @pattern that have none of the texts that are claimed of their page."""
    return [f"{page}: {sentence}" for page in PAGES for sentence in shown(page)
            if re.search(pattern, sentence)
            and not any(of == page and text in sentence for of, text in claimed)]


def is_shown(page, text):
    return any(text in sentence for sentence in shown(page))


# ---- options and defaults ----

ARGUMENTS = {"tenured": ("--config", "/dev/null", "--node-name", "h1", "--node-id", "0" * 32),
             "tenure-core": ("--name", "n1")}


@pytest.mark.parametrize("program", ARGUMENTS)
def test_a_manual_page_has_each_option_of_its_program_and_no_other(program):
    help = run(BIN / program, "--help")
    options = set(re.findall(r"^  (?:-., |    )?--([a-z-]+)", help, re.M)) - {"help", "version"}
    text = PAGES[f"{program}.8"].read_text()
    text = text[text.index("\n.Sh OPTIONS"):text.index("\n.Sh ", text.index("\n.Sh OPTIONS") + 1)]
    listed = {option for line in re.findall(r"^\.It (Fl .*)", text, re.M)
              for option in re.findall(r"Fl -([a-z-]+)", line)}

    assert listed == options


@pytest.mark.parametrize("program", ARGUMENTS)
def test_the_page_that_a_program_makes_of_its_settings_is_correct(program, tmp_path):
    page = tmp_path / "page.5"
    page.write_text(run(BIN / program, "--help=conf"))
    said = run("sh", "-c", "mandoc -T lint -W warning \"$0\" || true", page)
    assert said == ""


DEFAULTS = [
    ("org.tenure.Membership1.5", "by default more than half", "tenured",
     "MassFailurePercent", "55"),
    ("org.tenure.Membership1.5", "by default a minute", "tenured", "MassFailureWindow", "1min"),
    ("tenured.8", "by default the node publishes the address from which", "tenured",
     "Addresses", "core"),
    ("tenured.8", "This is off by default", "tenured", "FlapLimit", "0"),
    ("tenure-core.8", "0 stands for the default, 2147483648", "tenure-core", "QuotaBackendBytes",
     "2147483648"),
    ("tenure-core.8", "The default is one second", "tenure-core", "MinTTL", "1s"),
    ("tenure-core.8", "at most 3 seconds, which is the default", "tenure-core", "CacheTerm", "3s"),
    ("tenure-core.8", "contains *, which is the default", "tenure-core", "HostWhitelist", "*"),
    ("tenure-core.8", "a page for browsers at / of the client URLs; the default is yes",
     "tenure-core", "StatusPage", "yes"),
    ("tenure-core.8", "core replace; the default is no", "tenure-core", "ReplaceLostDisk",
     "no"),
    ("tenure-core.8", "The default heartbeat interval and election timeout are 50 and 500 ms",
     "tenure-core", "HeartbeatInterval", "50ms"),
    ("tenure-core.8", "The default heartbeat interval and election timeout are 50 and 500 ms",
     "tenure-core", "ElectionTimeout", "500ms"),
    ("tenure-core.8", "256 MiB is the default of --max-client-bytes", "tenure-core",
     "MaxClientBytes", str(256 << 20)),
    ("tenure-core.8", "--max-client-bytes, 256 MiB", "tenure-core", "MaxClientBytes",
     str(256 << 20)),
    ("tenure-core.8", "--max-request-bytes, 1.5 MiB", "tenure-core", "MaxRequestBytes",
     str(3 << 19)),
    ("tenure-core.8", "--max-txn-ops, 128,", "tenure-core", "MaxTxnOps", "128"),
    ("tenure-core.8", "--max-connections, 16,384", "tenure-core", "MaxConnections", "16384"),
    ("tenure-core.8", "--max-connections-per-address, 8,192", "tenure-core",
     "MaxConnectionsPerAddress", "8192"),
    ("tenure-core.8", "(a day, unless it is set)", "tenure-core", "FinishUpgradeAfter", "24h"),
    ("tenurectl.1", "The time between updates; 1s by default", "tenurectl", "interval", "1s"),
    ("tenurectl.1", "how long to wait, by default for ever", "tenurectl", "wait", "for ever, 30s"),
    ("tenurectl.1", "for the lock, by default for ever", "tenurectl", "wait", "for ever, 30s"),
    ("tenurectl.1", "to stop, by default 30s", "tenurectl", "wait", "for ever, 30s"),
    ("tenurectl.1", "another holder has the lock, by default 124", "tenurectl",
     "conflict-exit-code", "124"),
    ("tenurectl.1", "from 1 to 10000, by default 100", "tenurectl", "weight", "100"),
    ("tenurectl.1", "by default that of the host", "tenurectl", "name", "the host's"),
    ("tenurectl.1", "the TTL of the member's lease, by default 10s", "tenurectl", "ttl", "10s"),
    ("tenurectl.1", "may take to end, by default 10s", "tenurectl", "grace", "10s"),
    ("tenurectl.1", "The cluster; by default the agent's", "tenurectl", "cluster", "the agent's"),
    ("tenurectl.1", "the default is http://127.0.0.1:2379", "tenurectl", "endpoints",
     "$TENURE_ENDPOINTS, http://127.0.0.1:2379"),
    ("tenurectl.1", "“default” otherwise", "tenured", "Cluster", "default"),
    ("tenurectl.1", 'a cluster other than "default"', "tenured", "Cluster", "default"),
    ("tenurectl.1", "The default, 10 s, bridges 4.4 s", "tenured", "TTL", "10s"),
    ("tenure_new.3", "“default” otherwise", "tenured", "Cluster", "default"),
    ("tenure_lease_grant.3", 'the cluster is "default"', "tenured", "Cluster", "default"),
]
OTHER_DEFAULTS = [
    ("org.tenure.Membership1.5", "authentication as an administrator by default"),  # polkit's
    ("tenured.8", "net.ipv4.tcp_wmem, 4 MiB by default"),  # the kernel's
    ("tenured.8", "with every default commented out"),
    ("tenured.8", "by default the host name"),  # differs from host to host
    ("tenured.8", "neither is enabled by default"),
    ("tenured.8", "Their ranges and defaults"),
    ("tenured.service-entry.5", "By default the name of the file"),
    ("tenured.service-entry.5", "port 0, the default"),
    ("tenured.service-entry.5", "/tenure/default/"),
    ("tenure-core.8", "with every default commented out"),
    ("tenure-core.8", "Their ranges and defaults"),
    ("tenure-core.8", "unless the value is etcd's default"),
    ("tenure-core.8", "by default 1000000000, and compact"),  # test_data_directory.py
    ("tenure-core.8", "which keeps both by default"),  # etcd's
    ("tenure-core.8", "which is what etcd does by default"),
    ("tenure-core.8", "The second option is the default"),
    ("tenurectl.1", "This is the default"),  # a command, which test_command_line.py leaves out
    ("tenurectl.1", "It fails after TIME, by default 25s"),  # see DURATIONS
    ("tenurectl.1", "the time of --wait, by default 30 seconds"),  # see DURATIONS
    ("tenurectl.1", "(KillMode=control-group, the default)"),  # systemd's
    ("tenurectl.1", "The default of --endpoints"),
]


def defaults_of_tenurectl():
    """As its help says them: the words in brackets."""
    help = "".join(run(BIN / "tenurectl", "help", verb) for verb in ("lock", "top", "work"))
    return {option: ", ".join(re.findall(r"\[(.*?)\]", text)) for option, text in
            re.findall(r"^  (?:-., |    )--([a-z-]+)(?:=\S+)? +(.*\[.*\].*)$", help, re.M)}


def test_each_default_that_a_page_quotes_is_that_of_the_program():
    defaults = {program: dict(re.findall(r"^(\w+)=(.*)$", run(BIN / program, "--test", *words),
                                         re.M)) for program, words in ARGUMENTS.items()}
    defaults["tenurectl"] = defaults_of_tenurectl()
    assert [claim for claim in DEFAULTS if not is_shown(*claim[:2])] == []
    assert [claim for claim in DEFAULTS if defaults[claim[2]].get(claim[3]) != claim[4]] == []
    assert sentences_with("[Dd]efault", [c[:2] for c in DEFAULTS] + OTHER_DEFAULTS) == []


# ---- durations ----

UNITS = {"ms": 0.001, "s": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400,
         "week": 7 * 86400}
WORDS = {"half a": 0.5, "a": 1, "an": 1, "each": 1, "another": 1, "one": 1, "two": 2, "three": 3, "five": 5,
         "ten": 10, "a hundred": 100}
DURATION = (r"\b(\d+(?:\.\d+)?|half an?|a hundred|an?|each|another|one|two|three|five|ten) "
            r"(ms|s|second|minute|hour|day|week)s?\b")


def seconds(text):
    number, unit = re.search(DURATION, text).groups()
    return (WORDS.get(number) or float(number)) * UNITS[unit]


def defined(path, name):
    """A constant of C, in seconds if it is a duration."""
    [value] = re.findall(rf"^#define {name}\s+\\?\s*(.*?)\s*(?:/\*.*)?$",
                         (TOP / path).read_text().replace("(size_t) ", ""), re.M)
    value = re.sub(r"NSEC_PER_(SEC|MSEC)", lambda m: {"SEC": "1", "MSEC": "0.001"}[m[1]], value)
    assert re.fullmatch(r"[\d .*()<u]+", value), f"{path}: {name} is {value}"
    return eval(value.replace("u", ""))


def written(path, pattern):
    """A number that is no constant."""
    [value] = re.findall(pattern, (TOP / path).read_text(), re.M)
    return float(value.rstrip(" *") or 1)


MONITORING, KERNEL = "agent/tenurectl/metrics_accept.c", "lib/loop/stream.c"
TERM = "lib/state/cached.h", r"CACHED_TERM_MAX_MS (?:INT64_C\()?(\d+)"
WORK = "agent/tenurectl/work.c"
CALLS, CACHE = "lib/tenure/calls.h", "lib/etcd/cache.c"
DURATIONS = [
    ("org.tenure.Membership1.5", "Lists are answered after that, within two seconds",
     lambda: defined("agent/tenured/lists.c", "REMEMBERED_WITHIN")),
    ("org.tenure.Membership1.5", "renewals of the last 24 hours took",
     lambda: 60 * defined("lib/session/evidence.h", "EVIDENCE_MINUTES")),
    ("org.tenure.Membership1.5", "nothing else could run, of the last two minutes",
     lambda: 2 * defined("lib/loop/loop.c", "MINUTE")),
    ("org.tenure.Membership1.5", "the agent waits up to two minutes",
     lambda: written("agent/tenured/authorize.c", r"ASK_TIMEOUT_USEC \(UINT64_C\((\d+)\)")),
    ("org.tenure.Membership1.5", "nor, after an hour, is one that expired",
     lambda: defined("lib/member/brake.h", "BRAKE_MISSED_FOR")),
    ("tenured.8", "are back, for an hour at most",
     lambda: defined("lib/member/brake.h", "BRAKE_MISSED_FOR")),
    ("tenured.8", "the journal does so after a second",
     lambda: defined("agent/tenured/events.c", "TROUBLE_FIRST")),
    ("tenured.8", "and then each minute",
     lambda: defined("agent/tenured/events.c", "TROUBLE_AGAIN")),
    ("tenured.8", "of the last 10 s, no process",
     lambda: written("lib/session/degraded.c", r'"avg(\d+)="')),
    ("tenured.8", "minute of the last 24 hours",
     lambda: 60 * defined("lib/session/evidence.h", "EVIDENCE_MINUTES")),
    ("tenured.8", "after a second, the log names the program that delays",
     lambda: defined("agent/tenured/leave.c", "HOLDERS_SOON")),
    ("tenured.8", "for at most a second or a quarter of the TTL",
     lambda: defined("lib/member/lease_calls.c", "LOOK_FIRST")),
    ("tenured.8", "silent for 10 seconds", lambda: defined("lib/member/world.h", "WORLD_PATIENCE")),
    ("tenured.8", "within 6 s, and it is asked again at least once a second",
     lambda: written("units/tenure-reboot.service", r"^WatchdogSec=(\d+)s$")),
    ("tenured.8", "asked again at least once a second",
     lambda: defined("lib/session/fencing.c", "ORDER_MOST")),
    ("tenured.8", "the rest 200 ms after the deadline",
     lambda: defined("lib/session/guarding.c", "TAKE_OVER")),
    ("tenured.8", "own watchdog within 6 s, and another one starts",
     lambda: written("units/tenure-guard.service", r"^WatchdogSec=(\d+)s$")),
    ("tenured.8", "last three weeks before the certificate",
     lambda: defined("lib/loop/cert_end.c", "WITHIN_DAYS") * UNITS["day"]),
    ("tenured.8", "each for at most 15 seconds", lambda: defined(MONITORING, "REQUEST_SECONDS")),
    ("tenured.8", "tenured.prom every 15 seconds",
     lambda: written("units/tenured-metrics-file.timer", r"^OnUnitActiveSec=(\d+)s$")),
    ("tenured.8", "while no endpoint answers, and every five minutes",
     lambda: defined("lib/client/discover.c", "REFRESH")),
    ("tenure-core.8", "The default is one second",
     lambda: defined("agent/tenure-core/options.c", "MIN_TTL_DEFAULT")),
    ("tenure-core.8", "last three weeks before the certificate",
     lambda: defined("lib/loop/cert_end.c", "WITHIN_DAYS") * UNITS["day"]),
    ("tenure-core.8", "why a client is refused, at most every 10 seconds",
     lambda: defined("lib/etcd/conn.c", "COMPLAIN_EVERY")),
    ("tenure-core.8", "at most 3 seconds, which is the default",
     lambda: written(*TERM) / 1000),
    ("tenure-core.8", "The first 3 seconds are free", lambda: written(*TERM) / 1000),
    ("tenure-core.8", "at most once in ten minutes",
     lambda: defined("lib/consensus/replacement.c", "AGAIN_AFTER")),
    ("tenure-core.8", "The kernel probes a silent connection after 10 s",
     lambda: written(KERNEL, r"TCP_KEEPIDLE, (\d+)")),
    ("tenure-core.8", "The kernel gives up 9 s after",
     lambda: written(KERNEL, r"TCP_KEEPINTVL, (\d+)") * written(KERNEL, r"TCP_KEEPCNT, (\d+)")),
    ("tenure-core.8", "nothing is acknowledged for 5 s",
     lambda: defined(KERNEL, "USER_TIMEOUT_MS") / 1000),
    ("tenure-core.8", "each turn of the loop of 50 ms",
     lambda: defined("agent/tenure-core/main.c", "LONG_TURN")),
    ("tenure-core.8", "A turn of the loop that takes 50 ms",
     lambda: defined("agent/tenure-core/main.c", "LONG_TURN")),
    ("tenure-core.8", "are logged once a minute for each cause",
     lambda: defined("lib/consensus/admission.c", "TELL_AGAIN")),
    ("tenure-core.8", "log its version once a minute",
     lambda: defined("lib/consensus/admission.c", "TELL_AGAIN")),
    ("tenure-core.8", "its term and the entry, at most every 10 seconds",
     lambda: defined("lib/consensus/install.c", "REFUSAL_LOG_AGAIN")),
    ("tenure-core.8", "no leader for 10 seconds logs",
     lambda: defined("agent/tenure-core/leaderless.c", "FIRST")),
    ("tenure-core.8", "logs this, and again each minute",
     lambda: defined("agent/tenure-core/leaderless.c", "AGAIN")),
    ("tenure-core.8", "incomplete for 10 to 20 seconds, or",
     lambda: 2 * defined("lib/etcd/conn.c", "REQUEST_TIMEOUT")),
    ("tenure-core.8", "sends none for three minutes",
     lambda: defined("lib/http/conn.c", "IDLE_LOOKS") * defined("lib/etcd/conn.c",
                                                                "REQUEST_TIMEOUT")),
    ("tenure-core.8", "sends something within a second",
     lambda: defined("lib/etcd/conn.c", "REFUSED_TIMEOUT")),
    ("tenure-core.8", "10 to 20 s; etcd: none",
     lambda: 2 * defined("lib/etcd/conn.c", "REQUEST_TIMEOUT")),
    ("tenure-core.8", "waited for 10 to 20 s is refused",
     lambda: 2 * defined("lib/etcd/conn.c", "REQUEST_TIMEOUT")),
    ("tenure-core.8", "24,000 in 10 s", lambda: defined("lib/etcd/conn.c", "REQUEST_TIMEOUT")),
    ("tenure-core.8", "that for 5 s (1 s,", lambda: defined("lib/etcd/conn_memory.c", "PATIENCE")),
    ("tenure-core.8", "(1 s, when twice",
     lambda: defined("lib/etcd/conn_memory.c", "PATIENCE_LEAST")),
    ("tenure-core.8", "if that was at least a second ago",
     lambda: defined("lib/etcd/conn_places.c", "STRANGE_MIN")),
    ("tenure-core.8", "had no call for 10 s", lambda: defined("lib/etcd/conn_places.c",
                                                              "IDLE_MIN")),
    ("tenure-core.8", "accepted, which is logged once a minute",
     lambda: defined("lib/loop/listener.c", "COMPLAIN_EVERY")),
    ("tenure-core.8", "up to 1,000 in 10 seconds",
     lambda: defined("agent/tenure-core/expiries.c", "PERIOD")),
    ("tenure-core.8", "journal names the member each minute",
     lambda: defined("lib/consensus/members.c", "LACKS_AGAIN")),
    ("tenure-core.8", "TTL of 5 s or more that is renewed again",
     lambda: 1000 * defined("lib/core/renew_pace.c", "AHEAD_MIN")),
    ("tenure-core.8", "(50 ms at most)", lambda: defined("lib/core/renew_pace.c", "AHEAD_MAX")),
    ("tenurectl.1", "unless the core reports within a second",
     lambda: defined("agent/tenurectl/lock.c", "ANSWER_MIN")),
    ("tenurectl.1", "that is an error after five seconds",
     lambda: defined("agent/tenurectl/lock.c", "REACH_FIRST")),
    ("tenurectl.1", "once no other member has joined for a second",
     lambda: defined("lib/tenure/work.c", "SETTLE_MS") / 1000),
    ("tenurectl.1", "is run again after 0.1 s", lambda: defined(WORK, "PAUSE")),
    ("tenurectl.1", "each time that it ends within 10 s", lambda: defined(WORK, "RUNS_WELL")),
    ("tenurectl.1", "doubles, up to 30 s", lambda: defined(WORK, "PAUSE_MOST")),
    ("tenurectl.1", "the time of --wait, by default 30 seconds",
     lambda: defined("agent/tenurectl/switchover.c", "WITHIN")),
    ("tenurectl.1", "its term of at most three seconds", lambda: written(*TERM) / 1000),
    ("tenurectl.1", "stays in the table for an hour",
     lambda: defined("agent/tenurectl/top_model.h", "TOP_LOST_FOR")),
    ("tenurectl.1", "one that has left for a minute",
     lambda: defined("agent/tenurectl/top_model.h", "TOP_GONE_FOR")),
    ("tenurectl.1", "If no core answers within 5 seconds",
     lambda: defined("agent/tenurectl/top.c", "ANSWER_WITHIN")),
    ("tenurectl.1", "minute of the last 24 hours",
     lambda: 60 * defined("lib/session/evidence.h", "EVIDENCE_MINUTES")),
    ("tenurectl.1", "with less than an hour, or fewer",
     lambda: 60 * defined("lib/session/evidence.h", "EVIDENCE_MINUTES_LEAST")),
    ("tenurectl.1", "everything that 60 s would have bridged",
     lambda: defined("lib/session/evidence.c", "LONGEST")),
    ("tenurectl.1", "and at least 1.5 s",
     lambda: defined("lib/session/evidence.h", "EVIDENCE_FAILOVER")),
    ("tenure_switchover.3", "within 5 seconds if the program",
     lambda: defined("lib/tenure/switchover_request.c", "LEASE_TTL")),
    ("tenure_get.3", "is probed after half a second",
     lambda: defined("lib/tenure/calls.c", "PROBE_AFTER")),
    ("tenure_get.3", "left half a second later", lambda: defined(CALLS, "CALLS_PROBE_WITHIN")),
    ("tenure_get.3", "answered for 10 seconds", lambda: defined(CALLS, "CALLS_PATIENCE")),
    ("tenure_get.3", "60 seconds after it was begun", lambda: defined(CALLS, "CALLS_LIMIT")),
    ("tenure_get.3", "waits for it, for some 10 seconds", lambda: defined(CALLS,
                                                                          "CALLS_PATIENCE")),
    ("tenure_cache.3", "a term of up to three seconds",
     lambda: written(*TERM) / 1000),
    ("tenure_cache.3", "which is less than three seconds",
     lambda: written(*TERM) / 1000),
    ("tenure_cache.3", "term on that range is granted for ten seconds",
     lambda: defined("lib/state/cached.c", "RESTS_FOR")),
    ("tenure_cache.3", "later than half a second after it was asked",
     lambda: defined(CACHE, "ANSWERS_WITHIN")),
    ("tenure_cache.3", "from that replica for a hundred seconds",
     lambda: defined(CACHE, "PAYS_TIMES")),
    ("tenure_watch.3", "every 10 seconds from a tenure-core",
     lambda: defined("lib/tenure/watch.c", "PROGRESS_EVERY")),
    ("tenure_watch.3", "After half a second the library ends",
     lambda: defined("lib/tenure/watch.c", "HOLD_MAX")),
    ("tenure_watch.3", "by half a second at most",
     lambda: defined("lib/tenure/watch.c", "HOLD_MAX")),
    ("tenure_watch.3", "or within one second while",
     lambda: defined("lib/tenure/calls.c", "PROBE_AFTER") + defined(CALLS, "CALLS_PROBE_WITHIN")),
]
OTHER_DURATIONS = [
    # settings: see DEFAULTS
    ("org.tenure.Membership1.5", "by default a minute"),
    ("tenure-core.8", "interval and election timeout are 50 and 500 ms"),
    ("tenure-core.8", "(a day, unless it is set)"),
    ("tenurectl.1", "The default, 10 s, bridges 4.4 s"),
    # measured, or an example
    ("tenured.8", "in the closest of 920 random runs"),
    ("tenured.8", "units that stop on SIGTERM have stopped"),
    ("tenured.8", "fault                    what stops it"),
    ("tenured.8", "runs on after the notification"),
    ("tenured.8", "In addition, at a TTL of 2 s"),
    ("tenured.8", "can run for up to 25 ms"),
    ("tenured.8", "as may happen at a TTL of 1 or 2 s"),
    ("tenure-core.8", "a gigabyte of keys took 15 seconds"),
    ("tenure-core.8", "some 14 ms of every other replica's time"),
    ("tenure-core.8", "some 10 ms each"),
    ("tenure_lease_grant.3", "at least every five seconds:"),
    # systemd's
    ("tenured.8", "at most five times in ten seconds"),
    ("tenured.8", "excludes TTLs below 2 s"),
    # follows from the sentence before, from several constants, or from where a clock is
    ("tenure-core.8", "So in an hour one address may hold up writes for 45 seconds"),
    ("tenure-core.8", "the leader notices within two seconds"),
    ("tenure-core.8", "at most the longest TTL and 10 seconds"),
    ("tenure_work_join.3", "for at most another second"),
    # no duration
    ("tenured.8", "a second one gets an error"),
    ("tenure-core.8", "until there has been another one; etcd refuses a second one"),
]


def test_each_default_in_the_help_of_tenurectl_is_that_of_the_program():
    said, main, ctl = defaults_of_tenurectl(), "agent/tenurectl/main.c", "agent/tenurectl/ctl.h"
    for option in "interval", "ttl", "grace":
        assert seconds(said[option].replace("s", " s")) == written(
            main, rf"\.{option} = (\d+ \* |)NSEC_PER_SEC")
    assert float(said["conflict-exit-code"]) == written(ctl, r"EXIT_NOT_MINE = (\d+)")


def test_each_duration_that_a_page_quotes_is_that_of_the_program():
    assert [claim[:2] for claim in DURATIONS if not is_shown(*claim[:2])] == []
    assert [(*claim[:2], claim[2]()) for claim in DURATIONS
            if abs(seconds(claim[1]) - claim[2]()) > 1e-9] == []
    assert sentences_with(DURATION, [claim[:2] for claim in DURATIONS] + OTHER_DURATIONS) == []


# ---- limits of the state ----

STATE, AUTH = "lib/state/state.h", "lib/state/auth.h"
LIMITS = {
    "leases": (STATE, "STATE_LEASES_MAX"),
    "bytes of a lease's name": (STATE, "STATE_LEASE_NAME_MAX"),
    "keys of a lease": (STATE, "STATE_LEASE_KEYS_MAX"),
    "cached ranges": ("lib/state/cached.h", "CACHED_RANGES_MAX"),
    "a cached range": ("lib/state/cached.h", "CACHED_KEYS_MAX"),
    "operations of a transaction": (STATE, "STATE_TXN_OPS_MAX"),
    "steps of a transaction": (STATE, "STATE_TXN_STEPS_MAX"),
    "keys of a deletion": (STATE, "STATE_DELETE_MAX"),
    "keys, with previous values": (STATE, "STATE_DELETE_PREV_MAX"),
    "bytes of previous values": (STATE, "STATE_DELETE_BYTES_MAX"),
    "users": (AUTH, "AUTH_USERS_MAX"),
    "roles": (AUTH, "AUTH_ROLES_MAX"),
    "roles of a user": (AUTH, "AUTH_ROLES_OF_USER_MAX"),
    "permissions of a role": (AUTH, "AUTH_PERMISSIONS_MAX"),
    "bytes of a user or role name": (AUTH, "AUTH_NAME_MAX"),
    "depth of a message": ("lib/wire/pb.h", "PB_DEPTH_MAX"),
}


def test_each_limit_of_the_state_is_that_of_the_sources():
    text = PAGES["tenure-core.8"].read_text()
    text = text[text.index("\n.Sh LIMITS"):text.index("\n.Ss Steps of a transaction")]
    rows = re.findall(r"^\.It (.*?) Ta ([\d,]+)( MiB)?", text, re.M)
    assert {what: int(number.replace(",", "")) << (20 if mib else 0)
            for what, number, mib in rows} == \
        {what: defined(*constant) for what, constant in LIMITS.items()}


# ---- the environment ----

# What libsystemd reads for a function that we call.
READ_FOR = {"sd_bus_open_system": "DBUS_SYSTEM_BUS_ADDRESS", "sd_watchdog_enabled": "WATCHDOG_USEC",
            "sd_listen_fds": "LISTEN_FDS", "sd_listen_fds_with_names": "LISTEN_FDS"}
# execvp() does, in a child of tenurectl; and tenure-core takes each option from such a variable.
OTHERS_READ = {"tenurectl": {"PATH"}, "tenure-core": {"ETCD_NAME", "ETCD_DATA_DIR"}}
# Set for the commands of tenurectl work, which nothing of ours reads.
ONLY_SET = {"TENURE_GROUP", "TENURE_TASK"}


def read_by(source):
    """The variables that a file of C reads, whether it names them or has a macro for the name."""
    text = source.read_text()
    macros = dict(re.findall(r'^#define (\w+) "([A-Z_]+)"', text, re.M))
    return {macros.get(name, name) for name in re.findall(r'\bgetenv\("?(\w+)"?\)', text)}


@pytest.mark.parametrize("page", ["tenured.8", "tenure-core.8", "tenurectl.1"])
def test_a_manual_page_has_each_variable_that_its_program_reads(page):
    program = page.rpartition(".")[0]
    code = (BIN / program).read_bytes()
    imported = set(re.findall(r" U (\w+)", run("nm", "-D", BIN / program)))
    read = {name for source in (TOP / "agent" / program).glob("*.c") for name in read_by(source)}
    read |= {name for source in (TOP / "lib").glob("*/*.c") for name in read_by(source)
             if f"\0{name}\0".encode() in code}
    read |= {name for function, name in READ_FOR.items() if function in imported}
    text = PAGES[page].read_text()
    text = text[text.index("\n.Sh ENVIRONMENT"):]
    text = text[:text.index("\n.Sh ", 1)]

    assert read > {"STATE_DIRECTORY"} or program == "tenurectl"
    assert set(re.findall(r"\bEv (\w+)", text)) - ONLY_SET == read | OTHERS_READ.get(program, set())


# ---- errors and files ----

# What a program of ours or another one is told, not what it says; and a sentence of etcdctl's.
NO_ERROR = re.compile(r"tenurectl |etcdctl |curl |killall |\{message|A lost disk|2 of 5 hosts|systemctl |journalctl |apt |make |socket |member list|"
                      r"ExecStart=|[._] |invalid database|/")


def quotes(page):
    """The words that a page shows as they are."""
    for line in PAGES[page].read_text().splitlines():
        for quote in re.findall(r"(?:^\.|\s)(?:Li|Dq|Ql) ([^.].*)", line):
            quote = re.split(r" (?:No|Ta|Xr|Li|Ns|Ar|Pa|Nm|Fl|Sx|Dq|[.,;:)])(?: |$)", quote)[0]
            yield re.sub(r"^Li ", "", quote).replace(r"\-", "-").replace(r"\&", "").strip(' "')


def literals():
    """The sources, with literals that the compiler joins joined."""
    return "".join(re.sub(r'"\s*\n?\s*"', "", path.read_text())
                   for path in SOURCES if path.suffix in (".c", ".h")).lower()


def test_each_error_that_a_page_quotes_is_one_that_a_program_says():
    said = literals()
    errors = [(page, part.strip()) for page in PAGES for quote in quotes(page)
              if len(quote.split()) > 1 and not NO_ERROR.match(quote)
              for part in quote.split("...") if part.strip() != os.strerror(errno.EIO)]
    assert len(errors) > 40
    assert [error for error in errors if error[1].lower() not in said
            and re.sub(r"\b\d+\b", "%zu", error[1].lower()) not in said] == []


# Those of systemd, of the kernel, of other programs, and of the reader.
NOT_OURS = re.compile(r"/etc/systemd/|/dev/|/srv/|/etc/machine-id|/proc/self/")


def test_the_page_of_the_agent_has_each_file_that_it_keeps():
    kept = {name for source in (TOP / "agent/tenured").glob("*.[ch]") for name in re.findall(
        r'runtime_path\("(\w+)"|"/run/tenure/(\w+)"|FILE_NAME "(\w+)"', source.read_text())}
    text = PAGES["tenured.8"].read_text()
    text = text[text.index("\n.Sh FILES"):]

    assert {"".join(name) for name in kept} == set(re.findall(r"/run/tenure/([a-z]+)\b(?![/.]\w)", text))


def test_the_page_of_tenurectl_has_each_exit_status():
    text = PAGES["tenurectl.1"].read_text()
    text = text[text.index("\n.Sh EXIT STATUS"):text.index("\n.Sh EXAMPLES")]
    statuses = re.findall(r"EXIT_\w+ = (\d+)", (TOP / "agent/tenurectl/ctl.h").read_text())

    assert re.findall(r"^\.It (\d+)", text, re.M) == ["0", *statuses]


def test_each_file_that_a_page_names_is_one_of_ours():
    ours = "".join(path.read_text(errors="replace") for path in [*SOURCES, TOP / "Makefile"])
    named = {(page, path) for page in PAGES for line in PAGES[page].read_text().splitlines()
             if re.search(r"\bPa /", line) for path in re.findall(r" (/[a-z][\w./*-]+)", line)}
    # The last part that is a name; the rest may be a variable of the Makefile, or $STATE_DIRECTORY.
    last = {path: re.split(r"[*A-Z]*[A-Z]{2}|\*", path)[0].rstrip("/.").rpartition("/")[2]
            for _, path in named}
    missing = {(page, path) for page, path in named if not NOT_OURS.match(path)
               and path not in ours and f"/{last[path]}" not in ours
               and f'"{last[path]}"' not in ours}
    assert len(named) > 30
    assert missing == set()
