"""What the agent reads, settings, drop-ins and certificates, and what it tells systemd of it."""
import re
import signal

import pytest
from harness.notifications import Notifications
from harness.places import BIN
from harness.program import run
from harness.waiting import ProgramError, eventually


@pytest.fixture
def systemd():
    """Hears what the agent tells systemd."""
    notifications = Notifications()
    yield notifications
    notifications.close()


def test_systemd_learns_that_the_agent_is_ready_and_what_it_does(agents, core, systemd):
    agent = agents("h1", Endpoints=f"http://127.0.0.1:1,{core.endpoints}",  # the first is dead
                   environment={**systemd.environment, "WATCHDOG_USEC": "30000000"})
    eventually(lambda: {"READY=1", "WATCHDOG=1"} <= set(systemd.text().splitlines()))
    assert re.search(r"^STATUS=Holding lease [0-9a-f]{16} as h1 in cluster \w+ of [01] nodes",
                     systemd.text(), re.M)
    agent.reload(TTL="1s")
    eventually(lambda: "WATCHDOG_USEC=250000" in systemd.text())  # for a shorter TTL
    assert re.search(r"^RELOADING=1\nMONOTONIC_USEC=\d+$", systemd.text(), re.M)


@pytest.mark.parametrize("at, trusts, why", [
    ("http://127.0.0.1:1", False, "Connection refused"),
    ("http://tenure.invalid:1", False, "no such host name is known, or DNS does not answer"),
    ("https://127.0.0.1:{port}", False, ".*certificate in certificate chain"),
    ("https://127.0.0.1:{port}", True, "tlsv13 alert certificate required"),
])
def test_why_there_is_no_place_is_in_the_log_and_told_to_systemd(
        agents, new_cluster, authority, systemd, at, trusts, why):
    at = at.format(port=new_cluster(1, authority=authority).endpoints.rpartition(":")[2])
    agent = agents("h1", held=False, environment=systemd.environment, Endpoints=at,
                   ReadyAfter="100ms", **({"TrustedCAFile": authority.cert} if trusts else {}))
    eventually(lambda: agent.said(f"Cannot join yet: {at}: {why}; still trying"))
    eventually(lambda: agent.said(f"No place yet after .*: {at}: {why}; still trying"))
    eventually(lambda: re.search(f"STATUS=Joining cluster .* as h1: {at}: {why}", systemd.text()))
    eventually(lambda: re.search(f"^   Trouble: {at}: {why}$", agent.ctl_whatever("status"), re.M))


def test_changed_settings_take_effect_and_the_log_says_when(agent):
    agent.reload(NodeName="h9", TTL="20s", LogLevel="notice", FenceLead="2s")
    agent.log_has("FenceLead= has changed")
    assert re.findall(r"notice +(\w+= has changed.*)", agent.log_text()) == [
        "NodeName= has changed; not while this place is held: stop the agent, and start it.",
        "TTL= has changed; from the next lease on.", "LogLevel= has changed.",
        "FenceLead= has changed."]

    agent.reload(LogLevel="debug", Nonsense="1")
    agent.log_has(f"{agent.configuration}:{2 * len(agent.settings)}: unknown key 'Nonsense' in "
                  "[Agent]. The settings in force remain unchanged")
    assert agent.log_text().count("LogLevel= has changed") == 1


@pytest.fixture
def file(tmp_path):
    (tmp_path / "tenured.conf.d").mkdir()
    return tmp_path / "tenured.conf"


def test_drop_ins_come_after_the_file_and_options_after_both(file):
    file.write_text("[Agent]\nTTL=3s\nNodeName=a\n")
    for name, text in ("20-later", "TTL=7s"), ("10-ttl", "TTL=5s\nNodeName=b"):
        (file.parent / f"tenured.conf.d/{name}.conf").write_text(f"[Agent]\n{text}\n")
    printed = run(BIN / "tenured", "-t", "-c", file, "--node-name=c").splitlines()
    assert {"TTL=7s", "NodeName=c"} < set(printed)


@pytest.mark.parametrize("test", [(), ("--test",)])
@pytest.mark.parametrize("name, line, sentence", [
    (".d/10-ttl.conf", "TLT=7s", "{}:2: unknown key 'TLT' in [Agent].\n"),
    ("", "TTL=2 parsecs",
     "{}:2: TTL= must be a time from 100ms to 24h such as 500ms or 10s, not '2 parsecs'."),
    ("", "Endpoints=nonsense", "Endpoints=: 'nonsense' is not a URL"),
    ("", "Endpoints=", "Endpoints=: no endpoint is given.\n"),
    ("", "Endpoints=srv://a.example,http://b.example:1",
     "Endpoints=: srv://a.example cannot be combined with other URLs.\n"),
    ("", "Endpoints=" + ",".join(f"http://10.0.0.{i}:2379" for i in range(17)),
     "Endpoints=: more than 16 endpoints are given; name fewer of them.\n"),
    ("", "[Fencing]\nHeldTarget=foo",
     "HeldTarget= must be a target such as tenure-held.target, or empty, not 'foo'.\n"),
    (".none", "", "{}/tenured.conf: cannot read: No such file"),
])
def test_a_setting_that_cannot_be_is_refused_by_name(file, name, line, sentence, test):
    file.touch()
    wrong = file.parent / (file.name + name)
    if line:
        wrong.write_text(f"[Agent]\n{line}\n")
    with pytest.raises(ProgramError) as refused:
        run(BIN / "tenured", *test, "--config", file if line else wrong / file.name)
    assert refused.value.err.startswith("tenured: " + sentence.format(wrong))


@pytest.mark.parametrize("program", ["tenured", "tenure-core"])
def test_the_manual_of_the_settings_has_every_option(program):
    listed = re.findall(r"^  --([a-z-]+) ", run(BIN / program, "--help"), re.M)
    explained = re.findall(r"^\.?Fl -([a-z-]+) ", run(BIN / program, "--help=conf"), re.M)
    assert sorted(explained) == sorted(listed)


# ---- TLS ----

@pytest.fixture
def tls(agents, new_cluster, authority):
    """An agent that shows a certificate to a core with TLS, which has two days left."""
    cluster = new_cluster(1, authority=authority)
    agent = agents("h1", Endpoints=cluster.endpoints, TrustedCAFile=authority.cert,
                   CertFile=cluster.client.cert.name, KeyFile=cluster.client.key.name,
                   environment={"CREDENTIALS_DIRECTORY": str(authority.folder)})
    return agent, cluster.replicas["a"]


def test_certificates_that_end_soon_are_named_in_the_log(tls):
    agent, replica = tls
    ends = r"expires on 20[0-9-]+, (within a day|in 1 day|in 2 days): renew it"
    assert agent.said(f"CertFile=client.pem {ends}")
    assert replica.said(f"The certificate of --cert-file {ends}.* clients will refuse to talk")


def test_new_certificates_are_read_without_a_restart_and_the_place_is_kept(tls, authority):
    agent, replica = tls
    lease = agent.status().lease_id
    authority.remake()
    for name in "client", "replica":
        authority.certificate(name)
    for program in agent, replica:
        program.signal(signal.SIGHUP)
        eventually(lambda: program.said("certificates were reloaded"))

    replica.kill()
    replica.start()

    eventually(lambda: agent.ctl("set-tags", "after=yes") == ""  # it has connected again
               and agent.node("h1").tags == {"after": "yes"})
    assert agent.status().lease_id == lease
