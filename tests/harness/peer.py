"""Whoever says to a replica's peer port that it is a member."""
import socket
import ssl
import struct

from .waiting import PATIENCE


def _connect(url, certificate, authority):
    host, port = url.partition("://")[2].rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
    if not authority:
        return connection
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(authority)
    if certificate:
        context.load_cert_chain(certificate.cert, certificate.key)
    return context.wrap_socket(connection)


def _say(url, said, certificate, authority):
    """What the replica says until it ends the connection, also if it resets that; b"" if it says
    nothing or is not there."""
    answer = b""
    try:
        with _connect(url, certificate, authority) as connection:
            connection.sendall(said)
            while part := connection.recv(4096):
                answer += part
    except OSError:
        pass
    return answer


def greet(url, cluster, member, certificate=None, authority=None, directory=0):
    """As that member with that data directory, which introduces itself, with a frame that is none
    after that: a replica that listens ends the link because of that, and says so in its log.
    Returns the number of the log's entry as of which it says that there is no such member, or
    None."""
    introduction = struct.pack("<IBQIQQQBQB5s", 52, 9, 0, 2, directory, 0, 0, 0, 0, 5,
                               b"0.2.0")
    said = _say(url, b"TENPEER1" + struct.pack("<QQ", cluster, member) + introduction
                + struct.pack("<IB", 1, 0), certificate, authority)
    return struct.unpack("<Q", said[5:13])[0] if len(said) >= 13 else None


def directory_of(replica):
    """The id of its data directory."""
    return struct.unpack("<Q", (replica.data / "meta").read_bytes()[1544:1552])[0]


def ask_id(url, own_url, certificate=None, authority=None, directory=0):
    """Which member has this peer URL, as a replica with that data directory asks; or None."""
    said = _say(url, b"TENJOIN1" + struct.pack("<QQ", len(own_url), directory) + own_url.encode(),
                certificate, authority)
    return struct.unpack("<IQQ", said[:20])[2] if len(said) >= 20 else None
