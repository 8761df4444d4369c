"""The table of verbs of tenurectl: what is refused, what help and the manual page say, and JSON."""
import json
import os
import random
import re
import shutil
import string
import subprocess
import tempfile
import unicodedata

import pytest
from harness.places import BIN, TOP
from harness.program import Daemon, run
from harness.waiting import ProgramError, eventually

MANUAL = (TOP / "agent/tenurectl/tenurectl.1").read_text()
ENDPOINTS = "--endpoints=http://127.0.0.1:1"
WORDS_THAT_ARE_NO_TIME = ["abc", "-1s", "nan", "1e300", "5 x", "infinity"]
WORDS_THAT_ARE_NO_COUNT = ["abc", "-1", "0x10", "1.5", "99999999999999999999"]


class Verb:
    """What `tenurectl help VERB` says of it."""

    def __init__(self, name):
        self.name, self.words = name, name.split()
        text = run(BIN / "tenurectl", "help", *self.words)
        self.usage = text.splitlines()[0].removeprefix("usage: tenurectl ")
        self.options = dict(re.findall(r"^  (?:-\w, |    )--([\w-]+)(?:=(\S+))?", text, re.M))
        self.operands = re.sub(r" \[--[a-z][^ ]*\]", "", self.usage.removeprefix(name)).split()
        self.failed = 125 if name in ("lock", "unlock", "work") else 1

    def line(self):
        """What it needs at least, so that nothing is wrong with it."""
        return self.words + ["--" if word == "--" else {"NAME=VALUE...": "a=b", "TTL": "60",
                             "REVISION": "1"}.get(word, "x")
                             for word in self.operands if not word.startswith("[")
                             and not word.endswith("]" if "[" not in word else "]]")]


def verbs():
    listed = run(BIN / "tenurectl", "--help").split("Options of all")[0]
    return [Verb(name) for name in
            re.findall(r"^  ([a-z][a-z -]*?)(?:  .*| [\[A-Z].*)?$", listed, re.M)]


@pytest.fixture(scope="module")
def table():
    return {verb.name: verb for verb in verbs()}


def refusal(*words):
    """Exit status and sentence; no line of these may do anything."""
    ended = subprocess.run([BIN / "tenurectl", *words], stdin=subprocess.DEVNULL, timeout=60,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           env={"PATH": "/usr/bin:/bin"})
    assert ended.stdout == b"", words
    return ended.returncode, ended.stderr.decode()


# ---- what is refused ----

def swapped(rng, word):
    at = rng.randrange(1, max(2, len(word) - 1))
    return word[:at - 1] + word[at:at + 1] + word[at - 1] + word[at + 1:]


def odd_word(rng):
    return os.fsdecode(bytes(rng.choice(b"az-=/.,\xff\x1b\x80\xc3 \n") for _ in range(
        rng.randrange(1, 12))))


def wrong_line(rng, table):
    """A command line with one mistake, and the exit status that it deserves."""
    verb = rng.choice([verb for verb in table.values() if verb.name not in ("complete", "help")])
    line, free = verb.line(), verb.name not in ("lock", "work", "core snapshot restore")
    valued = [name for name, hint in verb.options.items() if hint]
    kind = rng.randrange(9)
    if kind == 0:
        word = "".join(rng.choice(string.ascii_lowercase) for _ in range(9))
        return [word if rng.random() < .5 else "z" + odd_word(rng)], 1
    if kind == 1 and swapped(rng, verb.words[-1]) not in verb.words:
        return verb.words[:-1] + [swapped(rng, verb.words[-1])], 1
    if kind == 2:
        foreign = rng.choice([f"--{name}={hint}" if hint else f"--{name}"
                              for other in table.values() for name, hint in other.options.items()
                              if name not in verb.options and name not in ("sort", "tasks")])
        return [re.sub("TIME$|N$", "1", foreign), *line], verb.failed
    if kind == 3 and free and not verb.usage.endswith(("...", "...]")):
        return line + ["x"] * 3, verb.failed
    if kind == 4 and len(line) > len(verb.words) and verb.operands[0] != "[":
        return verb.words, verb.failed
    if kind == 5 and len(line) > len(verb.words) and free:
        line[len(verb.words)] = ""
        return line, verb.failed
    if kind == 6 and valued and free:
        name = rng.choice(valued)
        if verb.options[name] in ("TIME", "N"):
            words = WORDS_THAT_ARE_NO_TIME if verb.options[name] == "TIME" else (
                WORDS_THAT_ARE_NO_COUNT)
            return [f"--{name}={rng.choice(words)}", *line], verb.failed
        return [f"--{name}=", *line], verb.failed
    if kind == 7 and free:
        return [*line, rng.choice(valued and [f"--{valued[0]}"] or ["--x"])], verb.failed
    return ["--zz" + odd_word(rng).replace("\n", ""), *line], verb.failed


def test_three_hundred_wrong_lines_get_one_sentence_each(table):
    rng = random.Random(41)
    for _ in range(300):
        words, failed = wrong_line(rng, table)
        status, said = refusal(*words)
        assert status == failed, (words, said)
        assert re.fullmatch(r"tenurectl: [^\n]*[^.\n]\.\n", said), (words, said)
        assert "Invalid argument" not in said, (words, said)


@pytest.mark.parametrize("words, said", [
    (["nods"], "unknown command 'nods'; the most similar one is 'nodes'"),
    (["lease", "revok", "x"], "unknown command 'revok'; the most similar one is 'revoke'"),
    (["core"], "core needs a command; see tenurectl core --help"),
    (["nodes", "--filter=x"], "nodes does not take --filter; see tenurectl nodes --help"),
    (["status", "now"], "status does not take 'now'; see tenurectl status --help"),
    (["lease", "list", "--endpoints="], "--endpoints needs a value"),
    (["lease", "list", "--endpoints=,"], "',' names no endpoint of the core"),
    (["lease", "list", f"--endpoints=http://x:1,{'a' * 400},http://y:1"],
     f"--endpoints: '{'a' * 400},http://y:1' is too long"),
    (["cache", "x", "--endpoints=,"], "',' names no endpoint of the core"),
    (["cache", "", "--prefix"], "cache: KEY is empty"),
    (["lease", "grant", "soon", ENDPOINTS], "TTL must be a time from 1ms to 876000h such as 500ms "
     "or 10s, not 'soon'"),
    (["top", "--interval=1ms"], "--interval must be a time from 100ms to 1h such as 500ms or 10s, "
     "not '1ms'")])
def test_what_is_wrong_is_named(words, said):
    assert refusal(*words) == (1, f"tenurectl: {said}.\n")


@pytest.mark.parametrize("words, said", [
    (["wait-revision", "1", "abc"], "TIME must be a time from 0s to 8760h such as 500ms or 10s, "
     "not 'abc'"),
    (["wait-revision", "x"], "REVISION must be a whole number from 0 to 9223372036854775807, "
     "not 'x'"),
    (["register", "web", "8080"], "'8080' is not NAME=VALUE"),
    (["register", "web", "port=80"], "'port' is no tag of a service; write Port="),
    (["register", "web", "ADDRESS=::1"], "'ADDRESS' is no tag of a service; write Address="),
    (["register", "web", "Port=http"], "Port= must be a whole number from 1 to 65535, not 'http'"),
    (["register", "web", "=b"], "'=b' is not NAME=VALUE"),
    (["set-tags", "zone"], "'zone' is not NAME=VALUE")])
def test_operands_are_read_before_the_agent_is_asked(bus, words, said):
    assert refusal(f"--bus={bus.address}", *words) == (1, f"tenurectl: {said}.\n")


def test_a_time_has_the_same_units_everywhere(agent):
    sentence, status = agent.refusal("wait-revision", "99999999", "50ms")
    assert status == 1 and "has not been reached" in sentence


def test_a_snapshot_is_not_restored_without_the_program_that_does_it():
    assert refusal("core", "snapshot", "restore", "/none") == (1, (
        "tenurectl: tenure-core is not in $PATH, and restores snapshots: install it on this host, "
        "or add its directory to $PATH.\n"))


def test_an_error_is_json_where_that_is_asked_for():
    assert refusal("--json=short", "nodes", "--filter=x") == (
        1, '{"message":"nodes does not take --filter; see tenurectl nodes --help"}\n')


# ---- help and the manual page ----

def test_help_on_a_verb_is_found_in_each_way(table):
    text = run(BIN / "tenurectl", "help", "lock")
    assert text == run(BIN / "tenurectl", "lock", "--help") == run(BIN / "tenurectl", "-h", "lock")
    assert text == run(BIN / "tenurectl", "lock", "job", "--help")
    assert "usage: tenurectl lock [" in text and "--wait=TIME" in text
    leases = run(BIN / "tenurectl", "lease", "--help")
    assert "lease revoke LEASE..." in leases and "nodes" not in leases


def mdoc(usage):
    """As the manual page writes it."""
    lines = []
    for word in re.findall(r"\[[^\[\] ]*(?:\[[^\]]*\][^\] ]*)?(?: [^\]]*)?\]|\S+", usage):
        optional = word[0] == "["
        body = re.sub(r"\.\.\.$", " ...", word[1:-1] if optional else word)
        if body.startswith("-- "):
            body = "Li -- Ar " + body[3:]
        elif body == "--":
            body = "Li --"
        elif body.startswith("--"):
            name, _, value = body[2:].partition("=")
            body = f"Fl -{name}" + (f" Ns = Ns Ar {value}" if value else "")
        elif re.fullmatch("[a-z-]+", body):
            body = "Cm " + body
        elif "[" in body:
            body = re.sub(r"(\w+)\[/(\w+)\]", r"Ar \1 Ns Oo / Ns Ar \2 Oc", body)
        else:
            body = "Ar " + body.replace("=", " Ns = Ns Ar ")
        lines.append("." + ("Op " if optional else "") + body)
    return lines


def test_the_manual_page_has_the_synopsis_of_each_verb(table):
    synopsis = re.search(r"\.Sh SYNOPSIS\n(.*?)\.Sh ", MANUAL, re.S)[1].splitlines()
    assert synopsis == [line for verb in table.values() for line in [".Nm", *mdoc(verb.usage)]]


def test_the_manual_page_has_each_verb_and_option(table):
    for verb in set(table) - {"complete", "help"}:
        assert re.search(rf"^\.It Cm {verb}\b", MANUAL, re.M), verb
    for option in {option for verb in table.values() for option in verb.options}:
        assert re.search(rf"\bFl (\w+ , )?-{option}\b", MANUAL), option


# ---- completion ----

# Has bash split the line as it does for a person, and prints what it offers.
BASH = r"""
. "$1/${3:-tenurectl}"; COMP_LINE=$2; COMP_POINT=${#2}; COMP_WORDS=() COMP_CWORD=
while [[ $2 =~ ^([[:space:]]*)([=:]|[^[:space:]=:]+)(.*)$ ]]; do
    COMP_WORDS+=("${BASH_REMATCH[2]}"); set -- "$1" "${BASH_REMATCH[3]}"; done
[[ $COMP_LINE != *[[:space:]] ]] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); name=${COMP_WORDS[0]##*/}
$(complete -p "$name" | sed 's/.*-F \([^ ]*\).*/\1/') "${COMP_WORDS[0]}"
printf '%s\n' "${COMPREPLY[@]}"
"""
# Has zsh at a terminal complete the line as it does for a person who presses TAB, and prints what
# it offers, and then what has become of the line. compadd is what offers.
ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1= fpath=(${(q)1} \$fpath); autoload -Uz compinit; compinit -u -d $3/known; stty -echo"
zpty -w shell 'compadd() {
    local -a hits
    [[ " $* " == *\ -[AOD]\ * ]] || builtin compadd -A hits "$@"
    printf "<offer>%s<offered>" "${hits[@]}"
    builtin compadd "$@"
}
tab() { zle complete-word; print -r -- "<line>$BUFFER<end>" }
zle -N tab; bindkey "^I" tab; print read""y'
zpty -r shell seen '*ready*'
zpty -w -n shell "$2"$'\t'
zpty -r shell seen '*<end>*'
print -r -- "$seen"
"""
ZSH_FOLDER = tempfile.TemporaryDirectory() # where it notes which functions there are
NEEDS_ZSH = pytest.mark.skipif(not shutil.which("zsh"),
                               reason="zsh is not installed (as root: apt install zsh)")
SHELLS = pytest.mark.parametrize("shell", ["bash", pytest.param("zsh", marks=NEEDS_ZSH)])


def completed(line, PATH=f"{BIN}:/usr/bin:/bin", **environment):
    """What zsh offers for a line, and what it makes of the line."""
    seen = run("zsh", "-f", "-c", ZSH, "zsh", TOP / "conf/completion", line,
               ZSH_FOLDER.name, PATH=PATH, **environment)
    return (set(re.findall(r"<offer>([^<]+)<offered>", seen)),
            re.search(r"<line>(.*?)<end>", seen)[1])


def offered(line, program="tenurectl", shell="bash", **environment):
    if shell == "zsh": # which offers whole words, and bash what follows a =
        return {re.sub("^-[^=]*=(?=.)", "", word) for word in completed(line, **environment)[0]}
    return set(run("bash", "-c", BASH, "bash", TOP / "conf/completion", line, program,
                   **{"PATH": f"{BIN}:/usr/bin:/bin", **environment}).split())


@SHELLS
def test_words_and_options_are_offered_as_the_table_has_them(table, shell):
    def offers(line, program="tenurectl"):
        return offered(line, program, shell)

    assert offers("tenurectl ") == {verb.words[0] for verb in table.values()}
    assert offers("tenurectl lease ") == {
        verb.words[1] for verb in table.values() if verb.words[0] == "lease"}
    assert offers("tenurectl core snapshot s") == {"save"}
    assert offers("tenurectl leave --p") == {"--persistent"}
    assert not offers("tenurectl nodes --w")
    assert offers("tenurectl nodes --json=s") == {"short"}
    assert offers("tenurectl top --sort=") >= {"node", "zone"}
    for name in "nodes", "put", "lock", "core upgrade":
        assert offers(f"tenurectl {name} --") == {
            f"--{option}" + ("=" if hint else "") for option, hint in table[name].options.items()}
    assert offers("tenured --fence-l", "tenured") == {"--fence-lead"}
    assert "--data-dir" in offers("tenure-core --data", "tenured")


@SHELLS
def test_names_are_offered_by_whom_the_options_on_the_line_name(agent, shared_cluster, shell):
    eventually(agent.nodes)
    core = f"--endpoints={shared_cluster.endpoints}"
    assert offered(f"tenurectl --bus={agent.bus.address} nodes ", shell=shell) == {"h1"}
    assert offered(f"tenurectl --bus={agent.bus.address} switchover job h", shell=shell) == {
        "h1"}
    assert set(shared_cluster.members()) < offered(f"tenurectl {core} core move-leader ",
                                                   shell=shell)
    assert offered("tenurectl --endpoints=http://127.0.0.1:1 core move-leader ",
                   shell=shell) == set()


@SHELLS
def test_a_program_that_is_called_by_its_path_completes_its_own_line(shell):
    assert offered(f"{BIN}/tenurectl nod", shell=shell, PATH="/usr/bin:/bin") == {"nodes"}


@NEEDS_ZSH
def test_zsh_makes_of_a_line_what_was_begun(new_cluster, tmp_path):
    core = new_cluster(1)
    core.ctl("lease", "grant", "300", "$(touch${IFS}ran)")
    core.ctl("lease", "grant", "300", "two words; touch ran")
    (tmp_path / "ca file.pem").touch()

    def made_of(line):
        return completed(line, cwd=tmp_path, TENURE_ENDPOINTS=core.endpoints)[1]

    assert made_of("tenurectl serv") == "tenurectl services "
    assert made_of("tenurectl leave --re") == "tenurectl leave --reason="
    assert made_of("tenurectl nodes --json=p") == "tenurectl nodes --json=pretty "
    assert made_of("tenurectl cache k --cacert=ca") == r"tenurectl cache k --cacert=ca\ file.pem "
    assert made_of("tenurectl core snapshot save ca") == (
        r"tenurectl core snapshot save ca\ file.pem ")
    assert made_of("tenured --conf") == "tenured --config="
    assert made_of("tenured --config=ca") == r"tenured --config=ca\ file.pem "
    assert made_of("tenure-core --data-d") == "tenure-core --data-dir "
    assert made_of("tenure-core --data-dir ca") == r"tenure-core --data-dir ca\ file.pem "
    assert made_of("tenure-core --cert-file=ca") == r"tenure-core --cert-file=ca\ file.pem "
    assert made_of("tenurectl lease revoke t") == (
        r"tenurectl lease revoke two\ words\;\ touch\ ran ")
    assert made_of(r"tenurectl lease revoke \$") == (
        r"tenurectl lease revoke \$\(touch\$\{IFS\}ran\) ")
    assert made_of("tenurectl lease revoke $(touch ran) --en") == (
        "tenurectl lease revoke $(touch ran) --endpoints=")
    assert not (tmp_path / "ran").exists()




# ---- JSON ----

def schemas():
    text = re.search(r"\.Sh JSON\n.*?\.Bd -literal\n(.*?)\n\.Ed", MANUAL, re.S)[1]
    for line in re.sub(r"\n  +", " ", text).splitlines():
        verb, _, kind = line.partition(": ")
        kind = re.sub(r"(\w+\??): ", r'"\1": ', kind)
        yield verb, json.loads(re.sub(r'(?<!")\b(string|number|boolean)\b', r'"\1"', kind))


SCHEMAS = dict(schemas())


def fits(value, kind):
    if isinstance(kind, str):
        return {"string": str, "number": int, "boolean": bool}[kind] is type(value)
    if isinstance(kind, list):
        return type(value) is list and all(fits(each, kind[0]) for each in value)
    if "string" in kind:
        return type(value) is dict and all(fits(each, "string") for each in value.values())
    needed = {name for name in kind if not name.endswith("?")}
    known = {name.rstrip("?"): each for name, each in kind.items()}
    return (type(value) is dict and needed <= set(value) <= set(known)
            and all(fits(value[name], known[name]) for name in value))


def test_the_manual_page_has_the_json_of_each_verb_that_prints_some(table):
    assert set(SCHEMAS) == {name for name, verb in table.items() if "json" in verb.options} - {
        "describe"}


def check(verb, text):
    for line in text.splitlines():
        assert fits(json.loads(line), SCHEMAS[verb]), (verb, line)
    return [json.loads(line) for line in text.splitlines()]


def test_what_the_agent_is_asked_is_json_as_the_manual_page_says(agents, core, prefix, duty):
    agent = agents("h1", Tags="zone=a")
    watch = agent.background("--json=short", "watch")
    eventually(agent.nodes)
    service = agent.background("--json=short", "register", "web/a", "Port=80", "rack=7")
    eventually(agent.services)
    held = duty.begin(agent)
    eventually(watch.out.read_text)
    since = agent.background("--json=short", "watch", "--since=1")

    for verb in "status", "check", "nodes", "services", "entries", "ttl advise":
        assert check(verb, agent.ctl("--json=short", *verb.split()))
    check("wait node", agent.ctl("--json=short", "wait", "node", "h1"))
    check("wait service", agent.ctl("--json=short", "wait", "service", "none", "--gone"))
    check("wait-revision", agent.ctl("--json=short", "wait-revision", "1"))
    check("put", agent.ctl("--json=short", "put", prefix + "k", "v", "--while-held"))
    check("register", service.out.read_text())
    check("watch", watch.out.read_text())
    eventually(since.out.read_text)
    check("watch", since.out.read_text())
    check("switchover", agent.ctl("--json=short", "switchover", duty.lock, "h1"))
    check("work", agent.ctl("--json=short", "work", "nobody"))
    said = agent.ctl_whatever("--json=short", "nodes", "h1", "h1", "nope")
    assert [node["Name"] for node in check("nodes", said)[0]] == ["h1"]
    held.signal(15)
    held.wait()


def test_what_the_core_is_asked_is_json_as_the_manual_page_says(new_cluster, ports, tmp_path):
    core = new_cluster(1)

    def ask(verb, *words):
        return check(verb, core.ctl("--json=short", *verb.split(), *words))

    lease = ask("lease grant", "60", "jobs")[0]["id"]
    assert [each["name"] for each in ask("lease list")[0]] == ["jobs"]
    ask("core leases")
    ask("lease ttl", "jobs")
    ask("lease ttl", lease, "--keys")
    ask("lease keep-alive", lease, "--once")
    assert ask("lease revoke", lease) == [{"lease": lease, "event": "Revoked"}]
    assert ask("cache", "none", "--once")[0]["keys"] == []
    member = ask("core members")[0][0]["id"]
    assert core.endpoints in core.ctl("--json=short", "core", "members")  # no slash as \\/
    ask("core move-leader", member)
    ask("core upgrade")
    ask("core upgrade", "--finish")
    ask("core snapshot save", tmp_path / "snapshot")
    added = ask("core add", f"http://127.0.0.1:{ports.take()}")[0]["id"]
    ask("core members")
    assert ask("core remove", added) == [{"id": added}]


# ---- output ----

def to_full(*words, patience=60):
    ended = subprocess.run(["sh", "-c", 'exec "$@" >/dev/full', "sh", BIN / "tenurectl", *words],
                           stderr=subprocess.PIPE, timeout=patience, env={"PATH": "/usr/bin:/bin"})
    return ended.returncode, ended.stderr.decode()


FULL = "cannot write to standard output: No space left on device"


def test_what_was_done_is_reported_if_it_cannot_be_printed(agent, core, prefix):
    bus = f"--bus={agent.bus.address}"
    status, said = to_full(bus, "put", prefix + "k", "v", "--while-held")
    written = core.get(prefix + "k")
    assert (status, said) == (
        1, f"tenurectl: {FULL}; what was done: Wrote '{prefix}k' at revision "
        f"{written.mod_revision}.\n")
    status, said = to_full(f"--endpoints={core.endpoints}", "lease", "grant", "60")
    assert status == 1 and re.search(f"{FULL}; what was done: lease [0-9a-f]{{16}} granted", said)


@pytest.mark.parametrize("words", [["watch"], ["register", "web"]])
def test_what_runs_on_ends_when_it_cannot_write(agent, words):
    status, said = to_full(f"--bus={agent.bus.address}", *words)
    assert status == 1 and FULL in said and said.count("\n") == 1


def test_what_is_listed_is_written_before_tenurectl_waits(agent):
    watch = agent.background("watch")
    eventually(lambda: "h1 " in watch.out.read_text())


def test_a_table_has_the_same_columns_whatever_the_names_are(new_cluster):
    core = new_cluster(1)
    core.ctl("core", "add", "http://127.0.0.1:1")  # has no name yet
    lines = core.ctl("core", "members").splitlines()[:3]
    assert {len(line.split()) for line in lines} == {6}

    core.ctl("lease", "grant", "60")
    core.ctl("lease", "grant", "600", "two words")
    heads, *leases = core.ctl("lease", "list").splitlines()[:3]
    at = heads.index("NAME")
    assert [line[at:] for line in leases] == ["-", "two words"]


def test_columns_are_below_each_other_beside_wide_and_combining_characters(agents):
    agents("h1", Tags="zone=\u6771\u4eac")
    agent = agents("h2", Tags="zone=e\u0301")
    heads, *nodes = eventually(lambda: (lines := agent.ctl("nodes").splitlines())[-1].startswith(
        "2 ") and lines[:3])
    at = heads.index("DEGRADED")
    for line in nodes:
        seen = "".join(char * (2 if unicodedata.east_asian_width(char) == "W" else
                               not unicodedata.combining(char)) for char in line)
        assert seen[at - 1:] == " -", line


def test_names_that_do_not_exist_are_reported(agent):
    eventually(agent.nodes)
    assert agent.ctl("nodes", "h1", "h1", "--no-legend").count("h1") == 1
    assert agent.refusal("nodes", "h1", "nope", "none") == ("no such node: 'nope', 'none'.", 1)
    assert agent.refusal("services", "nope") == ("no such service: 'nope'.", 1)


def test_register_waits_for_an_agent_and_says_so(bus, agents):
    register = Daemon(bus.log.with_name("register.log"), BIN / "tenurectl", "--no-ask-password",
                      f"--bus={bus.address}", "register", "web").start()
    eventually(lambda: "no agent answers on this bus; waiting for it" in register.log_text())
    agents("h1", bus=bus)
    eventually(lambda: "Registered." in register.log_text())


# ---- locks ----

def test_a_refused_lock_names_its_holder(agents, duty):
    agent, other = agents("h1"), agents("h2")
    duty.begin(agent)
    for words, status in (["-n"], 124), (["--wait=0"], 124), (["-n", "-E", "9"], 9):
        said, ended_with = other.refusal("lock", *words, duty.lock, "--", "true")
        assert ended_with == status
        assert re.fullmatch(rf"the lock '{duty.lock}' is held by h1 since 2\S+Z\.", said)
    said, status = other.refusal("unlock", duty.lock)
    assert status == 124 and "is held by h1 since" in said


@pytest.mark.parametrize("value, holder", [
    ('{"node":null}', "the lease [0-9a-f]{16}"), ('{"node":"a","since":null}', "a"),
    ("{" * 5000, "the lease [0-9a-f]{16}"), ("", "the lease [0-9a-f]{16}"),
    ('{"node":"\x1b[31mb\\u0007"}', re.escape(r"\x1b[31mb\x07"))])
def test_the_holder_of_a_lock_may_have_written_anything(agent, core, duty, value, holder):
    lease = core.grant(60)
    core.put(f"{duty.lock}/{lease:x}", value, lease=lease)

    for words in ("lock", "-n", duty.lock, "true"), ("unlock", duty.lock):
        said, status = agent.refusal(*words)
        assert status == 124
        assert re.fullmatch(rf"the lock '{duty.lock}' is held by {holder}\.", said)


def test_a_lock_may_be_held_by_a_key_without_a_lease(agent, core, duty):
    core.put(f"{duty.lock}/notes", "to do")

    assert agent.refusal("lock", "-n", duty.lock, "true") == (
        f"the lock '{duty.lock}' is held by the key {duty.lock}/notes, which has no lease.", 124)


def test_a_lock_that_nobody_holds_cannot_be_given_back(agent, duty):
    assert agent.refusal("unlock", duty.lock) == (f"nobody holds the lock '{duty.lock}'.", 2)
