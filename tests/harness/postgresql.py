"""A PostgreSQL of Debian's, in which each test gets a database of its own."""
import glob
import itertools
import os
import shutil
import tempfile

from .program import Daemon, run
from .waiting import ProgramError, eventually

_PROGRAMS = (sorted(glob.glob("/usr/lib/postgresql/*/bin")) or ["/nonexistent"])[-1]


def is_installed():
    return os.access(f"{_PROGRAMS}/postgres", os.X_OK)


class PostgreSQL(Daemon):
    """Serves when it has been made. It does not run as root, and its user enters no folder of
    root's, so its data are in a folder of their own."""

    def __init__(self, log):
        self.folder = tempfile.mkdtemp(prefix="tenure-postgresql-", dir="/tmp")
        user = []
        if os.getuid() == 0:
            user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups",
                    "--pdeathsig=KILL", "--"]
            shutil.chown(self.folder, "postgres", "postgres")
        data = f"{self.folder}/data"
        run(*user, f"{_PROGRAMS}/initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync",
            cwd=self.folder)
        # A process of the server that computes does not see that the server was killed. That its
        # client is gone it notices, if it is configured to look.
        super().__init__(
            log, *user, f"{_PROGRAMS}/postgres", "-D", data, "-k", self.folder,
            *(f"-c{setting}" for setting in (
                "listen_addresses=", "fsync=off", "shared_buffers=16MB", "max_wal_senders=0",
                "wal_level=minimal", "client_connection_check_interval=1s")))
        self._names = map("t{}".format, itertools.count())
        self.start()
        eventually(lambda: self.database("postgres").sql("SELECT 1"))

    def database(self, name):
        return Database(self, name)

    def new_database(self, *options):
        """@options: of CREATE DATABASE."""
        name = next(self._names)
        self.database("postgres").sql(f"CREATE DATABASE {name} " + " ".join(options))
        return self.database(name)

    def end_of_all(self):
        self.stop()
        shutil.rmtree(self.folder)


class Database:
    def __init__(self, server, name, user="postgres", options=""):
        self.server, self.name, self.user, self.options = server, name, user, options
        # For a client of libpq.
        self.environment = {"PGHOST": server.folder, "PGUSER": user, "PGDATABASE": name,
                            "PGOPTIONS": options}

    def seen_by(self, user):
        return Database(self.server, self.name, user, self.options)

    def with_settings(self, **settings):
        """with_settings(tenure__token=5) sees tenure.token."""
        return Database(self.server, self.name, self.user, self.options + "".join(
            f" -c {name.replace('__', '.')}={value}" for name, value in settings.items()))

    def psql(self, *words):
        return run("psql", "-XAtq", "-vON_ERROR_STOP=1", *words, **self.environment)

    def sql(self, text):
        """What it prints: a line for each row, with | between columns."""
        return self.psql("-c", text).strip()

    def refusal(self, text):
        """The error; "" if there is none."""
        try:
            self.sql(text)
        except ProgramError as error:
            return error.err
        return ""

    def waiting(self):
        """How many transactions wait for another one."""
        return int(self.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                            " AND datname = current_database()"))


class Session(Daemon):
    """A psql that does one thing after the other, in transactions that stay open between them."""

    _numbers = itertools.count()

    def __init__(self, database, folder):
        number, self._asked, self._at = next(self._numbers), 0, 0
        fifo = folder / f"session{number}"
        os.mkfifo(fifo)
        super().__init__(folder / f"session{number}.log", "sh", "-c", 'exec "$@" <>"$0"', fifo,
                         "psql", "-XAtq", "-vVERBOSITY=verbose", "-f", "-", **database.environment)
        self._in = os.open(fifo, os.O_RDWR)
        self.start()

    def begin(self, text):
        """Asks for it, and returns a function that waits for what is printed."""
        self._asked += 1
        os.write(self._in, f"{text}\n\\echo did {self._asked}\n".encode())
        return self._answer

    def _answer(self):
        eventually(lambda: f"did {self._asked}\n" in self.text())
        answer, end, _ = self.text()[self._at:].partition(f"did {self._asked}\n")
        self._at += len(answer + end)
        return answer.strip()

    def sql(self, text):
        return self.begin(text)()
