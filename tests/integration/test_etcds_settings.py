"""tenure-core takes etcd's options, environment and files of settings, and says of each that has
no effect, or will not come, why."""
import pathlib
import re
import shutil

import pytest
from harness.places import BIN, TOP
from harness.program import run
from harness.waiting import ProgramError

EIGHT = ",".join(f"r{n}=http://127.0.0.1:{n}" for n in range(1, 9))  # replicas


def core(*words, cwd=None, **environment):
    """What tenure-core says of its settings, without running: first those in force."""
    # The shell joins both streams, as they come.
    return run("sh", "-c", '"$0" -t "$@" 2>&1', BIN / "tenure-core", *words, cwd=cwd, **environment)


def settings(*words, **options):
    """The settings in force, by name."""
    return dict(re.findall(r"^(\w+)=(.*)$", core(*words, **options), re.M))


def refusal(*words, **options):
    """The sentence with which it does not start."""
    with pytest.raises(ProgramError) as refused:
        core(*words, **options)
    assert refused.value.out.startswith("tenure-core: ")
    return refused.value.out


@pytest.mark.parametrize("wanted, options", [
    ("HeartbeatInterval=100ms", "--heartbeat-interval=100 --election-timeout 1000"),
    ("ElectionTimeout=1500ms", "-heartbeat-interval 100 -election-timeout 1.5s"),
    ("MinTTL=2s", "--election-timeout 1000"),
    ("MinTTL=1s", "--election-timeout 400"),
    ("AutoCompactionRetention=30m", "--auto-compaction-retention=30m"),
    ("AutoCompactionMode=revision",
     "--auto-compaction-mode=revision --auto-compaction-retention=1000"),
    ("WatchProgressNotifyInterval=90min", "--watch-progress-notify-interval=1h30m"),
    ("AuthTokenTTL=5min", "--auth-token-ttl 300"),
    ("StrictReconfigCheck=no", "--strict-reconfig-check=F"),
    ("ClientCertAuth=yes", "--client-cert-auth --trusted-ca-file=x"),
    ("QuotaBackendBytes=2147483648", "--quota-backend-bytes=0"),
    ("MaxRequestBytes=100", "--max-request-bytes=100"),
    ("ListenClientURLs=http://127.0.0.1:1,unix:///x",
     "--listen-client-urls=http://127.0.0.1:1 --listen-client-http-urls=unix:///x"),
    ("AdvertiseClientURLs=http://127.0.0.1:1",
     "--listen-client-urls=http://127.0.0.1:1 --listen-client-http-urls=unix:///x"),
    ("LogLevel=warning", "--log-level=warn"),
    ("LogLevel=err", "--log-level=fatal"),
    ("TLSMinVersion=TLS1.3", "--tls-min-version=TLS1.3"),
    ("PeerCertAllowedCN=a,b", "--peer-cert-allowed-cn=a,b"),
    ("InitialCluster=default=http://localhost:2380",
     "--initial-cluster=default=http://localhost:2380 "
     "--initial-advertise-peer-urls=http://localhost:2380"),
    ("Name=x", "--force-new-cluster=false --name=x"),
    ("Name=r1", "--name r1 --initial-cluster " + EIGHT  # while one is replaced
     + " --initial-cluster-state existing"),
    ("Name=n", "--proxy=off --enable-v2=false --auth-token=simple --discovery= --debug=false "
     "--unsafe-no-fsync=false --name n"),
])
def test_an_option_is_read_as_by_etcd(wanted, options):
    assert wanted in core(*options.split()).splitlines()


@pytest.mark.parametrize("sentence, options", [
    ("--enable-v2=true is not supported: the v2 API is gone; use v3", "--enable-v2"),
    ("--proxy=on is not supported: point clients at the replicas", "--proxy on"),
    ("--discovery=http://x is not supported: there is no discovery service; name all replicas in "
     "--initial-cluster", "--discovery http://x"),
    ("--discovery-srv=example.org is not supported: ", "--discovery-srv=example.org"),
    ("use --watch-progress-notify-interval", "--experimental-watch-progress-notify-interval=5s"),
    ("leave it out: ", "--experimental-initial-corrupt-check"),
    ("--unsafe-no-fsync=true is not supported: acknowledged writes are always synced",
     "--unsafe-no-fsync"),
    ("--auth-token=jwt,pub-key=x is not supported", "--auth-token=jwt,pub-key=x"),
    ("use --log-level=debug", "--debug"),
    ("gateway is not supported", "gateway start"),
    ("grpc-proxy is not supported", "grpc-proxy"),
    ("--peer-client-cert-file=x is not supported: issue --peer-cert-file for clients and servers",
     "--peer-client-cert-file x"),
    ("--election-timeout must be at least five times",
     "--heartbeat-interval 300 --election-timeout 1000"),
    ("'TLS_RSA_WITH_RC4_128_SHA' is unknown or too weak",
     "--cipher-suites TLS_RSA_WITH_RC4_128_SHA"),
    ("--tls-min-version is newer than --tls-max-version",
     "--tls-min-version TLS1.3 --tls-max-version TLS1.2"),
    (f"--peer-cert-allowed-cn: '{'a' * 256},b' is too long",
     "--peer-cert-allowed-cn " + "x," + "a" * 256 + ",b"),
    ("--client-crl-file needs --trusted-ca-file", "--client-crl-file x"),
    ("not by sockets of a host", "--listen-peer-urls unix:///x"),
    ("--name must be 1 to 127 bytes without blanks, commas and equals signs, not ''", "--name="),
    ("--name must be 1 to 127 bytes without blanks, commas and equals signs, not 'a,b'",
     "--name a,b"),
    ("--data-dir must not begin or end with a blank", ["--data-dir", "/x "]),
    ("--name must be 1 to 127 bytes without blanks", ["--name", "a b"]),
    ("is not a URL of the form unix:///PATH, with a path of 107 bytes or less",
     "--listen-client-urls unix:///" + "x" * 120),
    ("whoever reaches https://10.0.0.1:2380 can pretend to be a replica",
     "--peer-auto-tls --listen-peer-urls https://10.0.0.1:2380"),
    ("unknown option '--heartbeat'", "--heartbeat 1"),
    ("none.yml: cannot read: No such file", "--config-file none.yml"),
    ("a new cluster has 7 replicas at most", "--name r1 --initial-cluster " + EIGHT),
])
def test_what_will_not_come_is_refused_with_what_to_do_instead(sentence, options):
    assert sentence in refusal(*(options.split() if isinstance(options, str) else options))


@pytest.mark.parametrize("sentence, environment", [
    ("ETCD_HEARTBEAT_INTERVAL must be a time from 10ms to 5s such as 500ms or 10s, not 'fast'",
     dict(ETCD_HEARTBEAT_INTERVAL="fast")),
    ("run tenure-core --force-new-cluster once", dict(ETCD_FORCE_NEW_CLUSTER="true")),
    ("ETCD_EXPERIMENTAL_ENABLE_V2V3 is not supported: the v2 API is gone",
     dict(ETCD_EXPERIMENTAL_ENABLE_V2V3="/x"))])
def test_a_variable_that_is_wrong_is_refused(sentence, environment):
    assert sentence in refusal(**environment)


def test_options_go_before_the_environment_and_a_file_of_ours_knows_none(tmp_path):
    environment = dict(ETCD_NAME="e", ETCD_HEARTBEAT_INTERVAL="70", ETCD_LISTEN_PEER_URLS="",
                       ETCD_UNSUPPORTED_ARCH="arm")
    ours = tmp_path / "ours.conf"
    ours.write_text("[Core]\nName=f\n")
    given = {"Name": "e", "HeartbeatInterval": "70ms", "ListenPeerURLs": "http://127.0.0.1:2380"}
    assert given.items() <= settings(**environment).items()
    assert settings("--name", "o", **environment)["Name"] == "o"
    by_file = core("--config-file", ours, **environment)
    assert "\nName=f\n" in by_file and "\nHeartbeatInterval=50ms\n" in by_file
    assert "ETCD_NAME is ignored, since --config-file is given" in by_file
    assert settings("--config-file", ours, "--name", "o", **environment)["Name"] == "o"


def test_what_has_no_effect_is_logged_with_the_reason():
    said = core("--wal-dir", "/w", ETCD_MAX_WALS="3", ETCD_TYPO="1", ETCD_PRE_VOTE="false")
    assert "tenure-core: --wal-dir has no effect: the log is in --data-dir" in said
    assert "ETCD_MAX_WALS has no effect: " in said
    assert "ETCD_TYPO in the environment is not a setting of etcd" in said


def is_known(option):
    try:
        return bool(core(f"--{option}="))
    except ProgramError as refused:
        return "unknown option" not in refused.out


def test_every_setting_of_etcd_is_known_and_in_the_manual_page(wants_etcd):
    """Debian's etcd tells its own; the page has those of later ones as well."""
    debians = {*re.findall(r"^ +--([a-z0-9-]+)", run("etcd", "--help"), re.M)}
    page = (TOP / "agent/tenure-core/tenure-core.8").read_text().replace("\\", "")
    ours = {*re.findall(r"Fl -([a-z0-9-]*\w)", page)} - {"experimental", "user", "voter"}
    assert {name for name in debians if "experimental" not in name} <= ours
    assert [name for name in debians | ours if not is_known(name)] == []


# ---- its file ----

@pytest.fixture
def file(tmp_path):
    """With the keys of the sample that etcd ships."""
    return shutil.copy(pathlib.Path(__file__).parent / "etcd.conf.yml", tmp_path)


def test_a_file_of_etcds_is_recognized_and_stands_alone(file, tmp_path):
    said = core("--config-file", file, "--name", "o", ETCD_NAME="e")
    for line in ("Name=n1", "HeartbeatInterval=100ms", "ElectionTimeout=1s",
                 "AutoCompactionRetention=1", "WatchProgressNotifyInterval=5min",
                 "ClientCertAuth=yes", "PeerCertAllowedCN=a,b", "TLSMinVersion=TLS1.2",
                 "CipherSuites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,"
                 "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"):
        assert f"\n{line}\n" in said
    assert f"Command-line options are ignored because {file} is in etcd's format" in said
    assert "max-wals has no effect" in said
    assert settings(ETCD_CONFIG_FILE=file)["Name"] == "n1"
    unnamed = shutil.move(file, tmp_path / "unnamed")
    assert settings("--config-file", unnamed)["Name"] == "n1"


@pytest.mark.parametrize("text, sentence", [
    ("name: x\nheartbeat-intervall: 3\n", ":2: unknown setting 'heartbeat-intervall'"),
    ("name: x\n\nelection-timeout: soon\n", ":3: election-timeout must be a time "),
    ("peer-transport-security:\n  client-cert-file: x\n",
     ":2: peer-transport-security.client-cert-file=x is not supported"),
    ("enable-v2: true\n", ":1: enable-v2=true is not supported: the v2 API is gone"),
    ("name: [x\n", ":2: "),
])
def test_a_mistake_in_a_file_of_etcds_is_named_with_its_line(tmp_path, text, sentence):
    file = tmp_path / "etcd.yml"
    file.write_text(text)
    assert f"{file}{sentence}" in refusal("--config-file", file)


def test_settings_of_etcds_file_are_printed_as_a_file_of_ours(file, tmp_path):
    printed = run(BIN / "tenure-core", "-t", "--config-file", file)
    ours = tmp_path / "ours.conf"
    ours.write_text(printed)
    assert run(BIN / "tenure-core", "-t", "--config-file", ours) == printed
