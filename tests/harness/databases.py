"""PostgreSQL on three hosts, of which one is the primary, and a client that writes all the time."""
import contextlib
import glob
import itertools

import pytest

from .waiting import ProgramError, eventually

VERSION = max([int(path.split("/")[-3]) for path in glob.glob("/usr/lib/postgresql/*/bin/postgres")]
              or [0])
_numbers = itertools.count()


class Databases:
    """Those of a rig last as long as that; h1 has none, and asks. What it is made of has a .port,
    and .all_follow(): there is a primary that all others follow as they should."""

    def __init__(self, rig):
        if VERSION < 15:
            pytest.skip("no PostgreSQL 15 or later (as root: apt install postgresql)")
        self.rig, self.hosts = rig, [rig.h2, rig.h3, rig.h4]
        self.source = (f"host=10.77.0.2,10.77.0.3,10.77.0.4 port={self.port} user=postgres "
                       "dbname=postgres target_session_attrs=read-write connect_timeout=2")
        self._make()

    @classmethod
    def written(cls, rig):
        """They all follow, and are written to."""
        made = vars(rig).get(cls.__name__) or cls(rig)
        vars(rig)[cls.__name__] = made
        made._write()
        return made

    def sql(self, host, text):
        return host.on("timeout", "10", "runuser", "-u", "postgres", "--", "psql", "-XAtq", "-p",
                       self.port, "-c", text).strip()

    def primaries(self):
        """As each host sees itself."""
        def is_primary(host):
            with contextlib.suppress(ProgramError):
                return host.init and self.sql(host, "SELECT pg_is_in_recovery()") == "f"

        return list(filter(is_primary, self.hosts))

    def another_leads(self, old):
        eventually(lambda: self.primary() not in (None, old), patience=120)

    def is_well(self):
        """All follow, writes go on, and nothing that was acknowledged is lost."""
        eventually(self.all_follow, patience=120)
        self.goes_on()
        self._client.kill()
        eventually(self._has_all)

    def goes_on(self):
        n = len(self._acknowledged())
        eventually(lambda: len(self._acknowledged()) > n + 3)

    def _ask(self, text):
        return self.rig.h1.on("timeout", "10", "psql", "-XAtq", self.source, "-c", text)

    def _write(self):
        eventually(self.all_follow, patience=120)
        self._table = f"t{next(_numbers)}"
        self._ask(f"CREATE TABLE {self._table} (n bigint)")
        self._client = self.rig.h1.start(
            "sh", "-c",
            'while n=$((n + 1)); do timeout 8 psql -XAtq "$0" -c "INSERT INTO $1 VALUES ($n)"'
            " && echo $n; done", self.source, self._table)
        self.goes_on()

    def _acknowledged(self):
        return {line for line in self._client.lines() if line.isdigit()}

    def _has_all(self):
        lost = self._acknowledged() - set(self._ask(f"SELECT n FROM {self._table}").split())
        assert not lost, f"lost: {sorted(lost)}"
        return True
