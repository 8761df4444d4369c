"""A certificate authority, what it signs and what it revokes, by openssl."""
from dataclasses import dataclass
from pathlib import Path

from .program import run

_EC = ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
_DATABASE = """[ca]
default_ca = d
[d]
database = {0}/index
crlnumber = {0}/crlnumber
default_md = sha256
default_crl_days = 2
"""


@dataclass(frozen=True)
class Certificate:
    cert: Path
    key: Path
    authority: Path

    @property
    def for_etcdctl(self):
        """The options of etcdctl, and of tenurectl, that show it."""
        return [f"--cacert={self.authority}", f"--cert={self.cert}", f"--key={self.key}"]


class Authority:
    """Its own certificate is .cert. All files are in a folder of its name. @key: the kind of all
    keys, as openssl-req(1) writes it; elliptic curves, if it is not given."""

    def __init__(self, folder, name="ca", key=None):
        self.folder = folder / name
        self.folder.mkdir()
        self._new_key = ["-nodes", "-newkey", *([key] if key else _EC)]
        self.cert, self._key = self.folder / "ca.pem", self.folder / "ca.key"
        self.remake()

    def remake(self):
        """It has another key from now on, so that nothing that it has signed before counts."""
        run("openssl", "req", "-x509", *self._new_key, "-keyout", self._key, "-out", self.cert,
            "-days", "2", "-subj", f"/CN={self.folder.name}")

    def certificate(self, name, *, subject=None, san="IP:127.0.0.1", usages=None):
        """@usages: of the key, as extendedKeyUsage has them; None: any."""
        cert, key, request, extensions = (self.folder / f"{name}.{kind}"
                                          for kind in ("pem", "key", "req", "ext"))
        run("openssl", "req", *self._new_key, "-keyout", key, "-out", request,
            "-subj", subject or f"/CN={name}")
        extensions.write_text(f"subjectAltName={san}\n"
                              + (f"extendedKeyUsage={usages}\n" if usages else ""))
        run("openssl", "x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self._key,
            "-CAcreateserial", "-out", cert, "-days", "2", "-extfile", extensions)
        return Certificate(cert, key, self.cert)

    def revocation_list(self, *revoked, since=None, expires=None):
        """A list of those alone, as a file. @since, @expires: when it counts, as openssl-ca(1)
        writes times."""
        (self.folder / "index").write_text("")
        (self.folder / "index.attr").write_text("unique_subject = no\n")
        (self.folder / "crlnumber").write_text("01\n")
        database, file = self.folder / "ca.cnf", self.folder / "revoked.pem"
        database.write_text(_DATABASE.format(self.folder))
        ca = ["openssl", "ca", "-config", database, "-keyfile", self._key, "-cert", self.cert]
        for certificate in revoked:
            run(*ca, "-revoke", certificate.cert)
        run(*ca, "-gencrl", "-out", file, *(["-crl_lastupdate", since] if since else []),
            *(["-crl_nextupdate", expires] if expires else []))
        return file
