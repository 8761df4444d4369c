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


def test_systemd_hears_that_the_agent_is_ready_and_what_it_does(agents, core, systemd):
    agent = agents("h1", Endpoints=f"http://127.0.0.1:1,{core.endpoints}",  # the first is dead
                   environment={**systemd.environment, "WATCHDOG_USEC": "30000000"})

    eventually(lambda: {"READY=1", "WATCHDOG=1"} <= set(systemd.text().splitlines()))
    assert re.search(r"^STATUS=Holding lease [0-9a-f]{16} as h1 in cluster \w+ of [01] nodes",
                     systemd.text(), re.M)
    agent.reload(TTL="1s")
    eventually(lambda: "WATCHDOG_USEC=250000" in systemd.text())  # for a shorter TTL
    assert re.search(r"^RELOADING=1\nMONOTONIC_USEC=\d+$", systemd.text(), re.M)


@pytest.mark.parametrize("at, why", [
    ("http://127.0.0.1:1", "Connection refused"),
    ("https://127.0.0.1:{port}", ".*certificate.*"),
])
def test_why_there_is_no_place_is_in_the_log_and_told_to_systemd(
        agents, new_cluster, authority, systemd, at, why):
    port = new_cluster(1, authority=authority).endpoints.rpartition(":")[2]
    at = at.format(port=port)

    agent = agents("h1", held=False, environment=systemd.environment, Endpoints=at,
                   ReadyAfter="100ms")

    eventually(lambda: re.search(f"No place yet after .*: {at}: {why}; still trying",
                                 agent.log_text()))
    eventually(lambda: re.search(f"STATUS=Joining cluster .* as h1: {at}: {why}", systemd.text()))


def test_changed_settings_take_effect_and_the_log_says_when(agent):
    agent.reload(NodeName="h9", TTL="20s", LogLevel="notice", FenceLead="2s")

    agent.log_has("FenceLead= has changed")
    assert re.findall(r"notice +(\w+= has changed.*)", agent.log_text()) == [
        "NodeName= has changed; not while this place is held: stop the agent, and start it.",
        "TTL= has changed; from the next lease on.", "LogLevel= has changed.",
        "FenceLead= has changed."]


def test_settings_with_an_error_change_nothing(agent):
    agent.reload(LogLevel="notice", Nonsense="1")

    agent.log_has(f"{agent.configuration}:{2 * len(agent.settings)}: unknown key 'Nonsense' in "
                  "[Agent]. The settings in force remain unchanged")
    assert "LogLevel= has changed" not in agent.log_text()


def test_drop_ins_come_after_the_file_and_options_after_both(tmp_path):
    settings, drop_ins = tmp_path / "tenured.conf", tmp_path / "tenured.conf.d"
    drop_ins.mkdir()
    settings.write_text("[Agent]\nTTL=3s\nNodeName=a\n")
    (drop_ins / "20-later.conf").write_text("[Agent]\nTTL=7s\n")
    (drop_ins / "10-ttl.conf").write_text("[Agent]\nTTL=5s\nNodeName=b\n")

    printed = run(BIN / "tenured", "-t", "-c", settings, "--node-name=c").splitlines()

    assert {"TTL=7s", "NodeName=c"} < set(printed)


def test_an_error_in_a_drop_in_names_its_file(tmp_path):
    drop_in = tmp_path / "tenured.conf.d/10-ttl.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Agent]\nTLT=7s\n")
    (tmp_path / "tenured.conf").touch()

    with pytest.raises(ProgramError) as refused:
        run(BIN / "tenured", "--test", "--config", tmp_path / "tenured.conf")

    assert refused.value.err == f"tenured: {drop_in}:2: unknown key 'TLT' in [Agent].\n"


@pytest.mark.parametrize("line, sentence", [
    ("TTL=2 parsecs",
     "{}:2: TTL= must be a time from 100ms to 24h such as 500ms or 10s, not '2 parsecs'."),
    ("Endpoints=nonsense", "Endpoints=: 'nonsense' is not a URL"),
])
def test_a_setting_that_cannot_be_is_refused_by_name(tmp_path, line, sentence):
    settings = tmp_path / "tenured.conf"
    settings.write_text(f"[Agent]\n{line}\n")

    with pytest.raises(ProgramError) as refused:
        run(BIN / "tenured", "--config", settings)
    assert refused.value.err.startswith("tenured: " + sentence.format(settings))


def test_settings_that_are_not_there_are_refused():
    with pytest.raises(ProgramError) as refused:
        run(BIN / "tenured", "--config", "/nonexistent.conf")
    assert "/nonexistent.conf: cannot read: No such file" in refused.value.err


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
    return agent, cluster, authority


def test_certificates_that_end_soon_are_named_in_the_log(tls):
    agent, cluster, _ = tls
    ends = r"expires on 20[0-9-]+, (within a day|in 1 day|in 2 days): renew it"

    assert re.search(f"CertFile=client.pem {ends}", agent.log_text())
    assert re.search(f"The certificate of --cert-file {ends}.* clients will refuse to talk",
                     cluster.replicas["a"].log_text())


def test_new_certificates_are_read_without_a_restart_and_the_place_is_kept(tls):
    agent, cluster, authority = tls
    replica, lease = cluster.replicas["a"], agent.status().lease_id
    authority.remake()
    for name in "client", "replica":
        authority.certificate(name)
    for program in agent, replica:
        program.signal(signal.SIGHUP)
        eventually(lambda: "certificates were reloaded" in program.log_text())

    replica.kill()
    replica.start()

    eventually(lambda: agent.ctl("set-tags", "after=yes") == ""
               and cluster.get(agent.key).value.count('"after":"yes"'))  # it has connected again
    assert agent.status().lease_id == lease
