"""The examples of conf/examples/tokens: a file and a PostgreSQL that know the largest token that
they have seen, so that the holder of a lock that wakes up late changes nothing."""
import fcntl
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness import ledger, postgresql
from harness.places import BIN, TOP
from harness.postgresql import PostgreSQL
from harness.program import Daemon, run
from harness.waiting import ProgramError, eventually

EXAMPLES = TOP / "conf/examples/tokens"


# ---- a file ----

class File:
    """append(token, text) returns the exit status and what was said."""

    REFUSED = 3

    def __init__(self, folder):
        self.program, self.path = folder / "append", folder / "file"
        run("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", self.program,
            EXAMPLES / "append.c")

    def append(self, token, text):
        try:
            return 0, run(self.program, self.path, token, text)
        except ProgramError as error:
            return error.status, error.err

    def lines(self):
        return self.path.read_text().splitlines()


@pytest.fixture
def file(tmp_path):
    return File(tmp_path)


def test_a_file_refuses_a_token_smaller_than_one_that_it_has_seen(file):
    assert file.append(7, "first") == file.append(9, "second") == (0, "")

    status, said = file.append(7, "late")

    assert status == File.REFUSED and "the token 7 is refused: " in said and "has seen 9" in said
    assert file.append(9, "third") == (0, "")
    assert file.lines() == ["7 first", "9 second", "9 third"]


def test_half_a_line_that_a_crash_has_left_has_never_been_written(file):
    file.path.write_text("9 third\n12 what a crash has le")

    assert file.append(10, "fourth") == (0, "")

    assert file.lines() == ["9 third", "10 fourth"]


@pytest.mark.parametrize("token, text", [
    (0, "x"), ("x", "x"), (11, "two\nlines"), ("99999999999999999999", "x"),
    ("9223372036854775808", "x"), ("12x", "x"), (" 12", "x"), ("+12", "x"), ("0x12", "x"),
    ("-12", "x"), ("", "x")])
def test_what_is_not_wholly_understood_is_no_token_since_it_could_lock_everybody_out(
        file, token, text):
    file.append(10, "before")

    status, _ = file.append(token, text)

    assert status == 1 and file.lines() == ["10 before"]


@pytest.mark.parametrize("content", [
    "10 x\n99999999999999999999 x\n", "10 x\n11x\n", "no token\n", "\0" * 20000])
def test_a_file_of_something_else_is_left_alone(file, content):
    file.path.write_text(content)

    status, _ = file.append(11, "x")

    assert status == 1 and file.path.read_text() == content


def test_a_writer_waits_for_the_one_before_it_and_is_refused_if_that_had_a_larger_token(file):
    file.append(10, "before")
    with open(file.path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        late = Daemon(file.path.with_name("late"), file.program, file.path, "30", "late").start()
        waits = re.compile(f"-> FLOCK .*:{file.path.stat().st_ino} ")
        eventually(lambda: waits.search(Path("/proc/locks").read_text()))
        with open(file.path, "a") as f:
            f.write("40 next\n")

    assert late.wait() == File.REFUSED
    assert file.lines() == ["10 before", "40 next"]


def test_writers_that_append_at_once_leave_no_token_after_a_larger_one(file, tmp_path, seed):
    drawn = random.Random(seed)
    refused = 'for t; do "$0" file $t x || [ $? = 3 ] || exit 1; done'
    writers = [Daemon(tmp_path / f"writer{w}.log", "sh", "-c", refused, file.program,
                      *(i + drawn.randrange(40) for i in range(1, 101))).start() for w in range(4)]

    assert [writer.wait() for writer in writers] == [0] * 4

    tokens = [int(line.split()[0]) for line in file.lines()]
    assert tokens == sorted(tokens) and len(tokens) >= 20
    assert any("is refused" in writer.text() for writer in writers)


# ---- PostgreSQL ----

@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if not postgresql.is_installed():
        pytest.skip("PostgreSQL is not installed (as root: apt install postgresql)")
    with ledger.lasting() as started:
        server = PostgreSQL(tmp_path_factory.mktemp("postgresql") / "postgresql.log")
    server.database("template1").psql("-f", EXAMPLES / "tokens.sql")
    server.database("postgres").sql("CREATE ROLE careless LOGIN; CREATE ROLE \"Bank-Owner\" LOGIN")
    yield server
    server.end_of_all()


@pytest.fixture
def bank(server):
    """A database with tokens.sql."""
    return server.new_database()


@pytest.fixture
def empty(server):
    """A database without it, so that it can be run there."""
    return server.new_database("TEMPLATE template0")


@pytest.fixture
def old(bank, tmp_path):
    return bank.session(tmp_path)


@pytest.fixture
def new(bank, tmp_path):
    bank.sql("CREATE TABLE ledger (id bigserial PRIMARY KEY, token bigint)")
    return bank.session(tmp_path)


def check(token, resource="r"):
    return f"SELECT tenure.check_token('{resource}', {token});"


def write(token):
    return f"{check(token)} INSERT INTO ledger (token) VALUES ({token});"


def seen(database, resource="r"):
    return int(database.sql(f"SELECT token FROM tenure.tokens WHERE resource = '{resource}'"))


def test_a_database_refuses_a_token_smaller_than_one_that_it_has_seen(bank):
    bank.sql(check(5))
    bank.sql(check(7))

    said = bank.refusal(check(5))

    assert 'the token 5 for the resource "r" is refused: 7 has been seen' in said
    bank.sql(check(5, "another"))
    assert "there is no token for the resource" in bank.refusal(check("NULL"))
    assert (seen(bank), seen(bank, "another")) == (7, 5)


def test_the_next_holder_waits_for_the_old_ones_transaction_and_sees_what_it_wrote(
        bank, old, new):
    old.sql("BEGIN; " + write(8))
    comes = new.begin(f"BEGIN; {check(9)} INSERT INTO ledger (token) "
                      "SELECT 1000 * count(*) FROM ledger; COMMIT;")
    eventually(lambda: bank.waiting() == 1)

    old.sql("COMMIT;")

    comes()
    assert bank.sql("SELECT max(token) FROM ledger") == "1000"


def test_an_old_holder_that_has_waited_for_the_next_one_is_refused(bank, old, new):
    new.sql(f"BEGIN; {check(11)}")
    late = old.begin(f"BEGIN; {write(10)} COMMIT;")
    eventually(lambda: bank.waiting() == 1)

    new.sql("COMMIT;")

    assert "TN001: the token 10 for the resource \"r\" is refused: 11 has been seen" in late()
    assert bank.sql("SELECT count(*) FROM ledger") == "0"


def test_a_larger_token_that_was_rolled_back_leaves_no_trace(bank, old, new):
    new.sql("BEGIN; " + write(20))
    waits = old.begin(f"BEGIN; {check(12)} COMMIT;")
    eventually(lambda: bank.waiting() == 1)

    new.sql("ROLLBACK;")

    assert "TN001" not in waits() and seen(bank) == 12


def test_two_transactions_of_one_holder_do_not_wait_for_each_other(old, new):
    old.sql(check(12))
    old.sql("BEGIN; " + check(12))

    assert new.sql(f"BEGIN; {check(12)} COMMIT;") == ""


def test_an_old_holder_at_repeatable_read_is_refused_too(old, new):
    old.sql(check(12) + "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;")
    new.sql(check(13))

    said = old.sql(check(12) + "COMMIT;")

    assert "40001" in said or "TN001" in said


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_whose_snapshot_is_older_than_its_token_is_refused(bank, old, new, level):
    """It has waited for the old holder, and would not see what that has left."""
    old.sql("BEGIN; " + write(5))
    first = new.begin(f"BEGIN ISOLATION LEVEL {level}; {check(6)} "
                      "INSERT INTO ledger (token) SELECT 1000 + count(*) FROM ledger; COMMIT;")
    eventually(lambda: bank.waiting() == 1 or "TN003" in new.text())
    old.sql("COMMIT;")
    assert "TN003" in first() and bank.sql("SELECT max(token) FROM ledger") == "5"

    bank.sql(check(6))  # in a transaction of its own
    bank.with_settings(default_transaction_isolation=level.replace(" ", "\\ ")).sql(
        check(6) + "INSERT INTO ledger (token) SELECT 1000 + count(*) FROM ledger")

    assert bank.sql("SELECT max(token) FROM ledger") == "1001"


def test_a_busy_old_holder_does_not_keep_the_next_one_out(bank, old, new, tmp_path):
    old.sql(check(5) + "BEGIN; " + check(5))
    comes = new.begin("BEGIN; " + check(6))
    eventually(lambda: bank.waiting() == 1)

    more = bank.session(tmp_path)
    late = more.begin(check(5))
    eventually(lambda: bank.waiting() == 2)  # it queues behind the next one
    old.sql("COMMIT;")

    assert "TN001" not in comes()
    new.sql("COMMIT;")
    assert "TN001" in late()


def test_writers_at_once_leave_no_token_after_a_larger_committed_one(bank, new, tmp_path):
    bank.sql("CREATE SEQUENCE numbers START 100")
    (tmp_path / "many.sql").write_text(100 * (
        "SELECT nextval('numbers') - (random() * 6)::int AS n \\gset\n"
        "BEGIN; SELECT tenure.check_token('r', :n) \\g /dev/null\n"
        "INSERT INTO ledger (token) VALUES (:n);\n"
        "SELECT CASE WHEN random() < 0.2 THEN 'ROLLBACK' ELSE 'COMMIT' END AS e \\gset\n:e;\n"))
    writers = [Daemon(tmp_path / f"many{n}.log", "psql", "-Xq", "-f", tmp_path / "many.sql",
                      **bank.environment).start() for n in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4

    tokens = list(map(int, bank.sql("SELECT token FROM ledger ORDER BY id").split()))
    assert tokens == sorted(tokens) and tokens[-1] == seen(bank) and len(tokens) > 30
    said = "".join(writer.text() for writer in writers)
    assert "is refused" in said and "deadlock" not in said


# ---- who may lower a token ----

def install(database):
    database.psql("-f", EXAMPLES / "tokens.sql")


def test_default_privileges_let_nobody_lower_a_token(empty):
    empty.sql("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO careless; "
              "ALTER DEFAULT PRIVILEGES GRANT SELECT, UPDATE ON TABLES TO PUBLIC")
    install(empty)
    empty.sql("GRANT USAGE ON SCHEMA tenure TO careless")
    for lowers in ("UPDATE tenure.tokens SET token = 1", "DELETE FROM tenure.tokens",
                   "TRUNCATE tenure.tokens"):
        assert "permission denied for table tokens" in empty.seen_by("careless").refusal(lowers)


def test_the_tokens_and_who_may_read_them_stay_when_tokens_sql_is_run_again(bank):
    bank.sql(check(9) + "GRANT USAGE ON SCHEMA tenure TO careless; "
             "GRANT SELECT ON tenure.tokens TO careless")

    install(bank)

    assert seen(bank.seen_by("careless")) == 9


def test_the_owner_of_a_database_may_run_tokens_sql_again_whatever_its_name(server):
    database = server.new_database('OWNER "Bank-Owner"', "TEMPLATE template0").seen_by("Bank-Owner")
    database.sql('ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO "Bank-Owner", careless')

    install(database)
    install(database)


def test_tokens_sql_runs_no_operator_of_who_may_create_some(bank):
    for kind in "name", "regrole":
        bank.sql(f"CREATE FUNCTION public.trap(oid, {kind}) RETURNS boolean LANGUAGE plpgsql "
                 "AS 'BEGIN RAISE ''trapped''; END'")
    bank.sql("CREATE OPERATOR public.<> (LEFTARG = oid, RIGHTARG = regrole, "
             "FUNCTION = public.trap)")

    install(bank)


def test_tokens_sql_is_not_run_in_a_schema_of_somebody_else(bank):
    bank.sql("ALTER SCHEMA tenure OWNER TO careless")

    with pytest.raises(ProgramError, match="belongs to another role than postgres"):
        install(bank)


def test_a_role_that_was_not_let_in_can_write_by_the_trigger_and_lock_nobody_out(bank):
    guard(bank, "CREATE TABLE guarded (n int)", "guarded")
    bank.sql("GRANT ALL ON guarded TO careless")
    teller = bank.seen_by("careless")

    assert "permission denied for schema tenure" in teller.refusal(check(99))
    teller.with_settings(tenure__token=6).sql("INSERT INTO guarded VALUES (4)")


# ---- the trigger ----

def guard(database, create, table, *arguments):
    """Creates the table, and has its writes checked. @arguments: of the trigger's function."""
    words = ", ".join(f"'{word}'" for word in arguments or [table])
    database.sql(f"{create}; CREATE TRIGGER token BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON "
                 f"{table} FOR EACH STATEMENT EXECUTE FUNCTION tenure.require_token({words})")


def refuses(database, table, token, *statements):
    for statement in statements:
        said = database.with_settings(tenure__token=token).refusal(statement)
        assert f'the token {token} for the resource "{table}" is refused' in said, statement


def test_a_table_with_the_trigger_takes_writes_with_a_token_that_is_not_too_old(bank):
    guard(bank, "CREATE TABLE guarded (n int)", "guarded")
    assert 'there is no token for the resource "guarded"' in bank.refusal(
        "INSERT INTO guarded VALUES (1)")
    bank.with_settings(tenure__token=5).sql("INSERT INTO guarded VALUES (1)")
    bank.with_settings(tenure__token=6).sql("UPDATE guarded SET n = 2")

    refuses(bank, "guarded", 5, "INSERT INTO guarded VALUES (3)", "UPDATE guarded SET n = 3",
            "DELETE FROM guarded", "TRUNCATE guarded", "COPY guarded FROM PROGRAM 'echo 3'")
    assert bank.sql("SELECT n FROM guarded") == "2"


def test_a_program_with_two_locks_has_a_token_for_each(bank):
    guard(bank, "CREATE TABLE first (n int)", "first")
    guard(bank, "CREATE TABLE second (n int)", "second", "second", "tenure.token_2")

    bank.with_settings(tenure__token=6, tenure__token_2=9).sql(
        "INSERT INTO second VALUES (1); INSERT INTO first VALUES (2)")

    assert (seen(bank, "first"), seen(bank, "second")) == (6, 9)
    assert 'no token for the resource "second"' in bank.with_settings(tenure__token=9).refusal(
        "INSERT INTO second VALUES (1)")


def test_no_way_to_a_table_leads_around_its_trigger(bank):
    bank.sql("CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1), (2)")
    guard(bank, "CREATE TABLE child (n int PRIMARY KEY, id int REFERENCES parent "
          "ON DELETE CASCADE ON UPDATE CASCADE)", "child")
    bank.sql("CREATE VIEW view AS SELECT * FROM child")
    bank.with_settings(tenure__token=6).sql("INSERT INTO child VALUES (1, 1)")
    merge = ["MERGE INTO child USING parent ON child.id = parent.id WHEN MATCHED THEN DELETE"]

    refuses(bank, "child", 5, "DELETE FROM parent", "UPDATE parent SET id = 3 WHERE id = 1",
            "TRUNCATE parent CASCADE", "UPDATE view SET n = 2",
            "INSERT INTO child VALUES (1, 1) ON CONFLICT (n) DO UPDATE SET id = 2",
            "WITH w AS (DELETE FROM child RETURNING n) SELECT n FROM w",
            *(merge if int(bank.sql("SHOW server_version_num")) >= 150000 else []))
    assert bank.sql("SELECT n, id FROM child") == "1|1"


def test_partitions_are_guarded_by_a_trigger_for_each_row(bank):
    guard(bank, "CREATE TABLE parted (n int, part int) PARTITION BY LIST (part); "
          "CREATE TABLE parted1 PARTITION OF parted FOR VALUES IN (1)", "parted")
    bank.sql("CREATE TRIGGER token_row AFTER INSERT OR UPDATE OR DELETE ON parted "
             "FOR EACH ROW EXECUTE FUNCTION tenure.require_token('parted')")
    bank.sql("CREATE TABLE parted2 PARTITION OF parted FOR VALUES IN (2); "
             "GRANT ALL ON parted TO careless")
    bank.with_settings(tenure__token=6).sql("INSERT INTO parted VALUES (1, 1), (2, 2)")

    refuses(bank, "parted", 5, "INSERT INTO parted VALUES (3, 1)",
            "UPDATE parted SET part = 2 WHERE part = 1", "DELETE FROM parted", "TRUNCATE parted",
            "INSERT INTO parted2 VALUES (3, 2)", "UPDATE parted1 SET n = 3", "DELETE FROM parted2",
            "COPY parted2 FROM PROGRAM 'echo 3 2 | tr \" \" \"\\t\"'")
    assert bank.sql("SELECT n, part FROM parted ORDER BY n").split() == ["1|1", "2|2"]
    assert "permission denied for table parted1" in bank.seen_by("careless").with_settings(
        tenure__token=5).refusal("TRUNCATE parted1")


def test_a_pooled_connection_keeps_no_token_of_set_local(bank, old):
    guard(bank, "CREATE TABLE guarded (n int)", "guarded")
    old.sql("BEGIN; SET LOCAL tenure.token = 6; INSERT INTO guarded VALUES (2); COMMIT;")

    assert "TN002" in old.sql("UPDATE guarded SET n = 3;")


@pytest.mark.parametrize("token", ["9223372036854775808", "0x10", "1e3", "-5", "abc", "9.0"])
def test_a_setting_that_is_no_whole_number_is_no_token(bank, token):
    guard(bank, "CREATE TABLE guarded (n int)", "guarded")

    said = bank.refusal(f"SET tenure.token = '{token}'; INSERT INTO guarded VALUES (1)")

    assert any(why in said for why in ("out of range", "invalid input syntax", "is no token"))


def test_tokens_beyond_those_of_floating_point_are_not_rounded(bank):
    guard(bank, "CREATE TABLE guarded (n int)", "guarded")

    bank.with_settings(tenure__token=2**53 + 1).sql("INSERT INTO guarded VALUES (1)")

    refuses(bank, "guarded", 2**53, "INSERT INTO guarded VALUES (2)")


# ---- holders ----

@pytest.fixture
def writer(bank, new, shared_cluster, program, tmp_path):
    """Starts the example, which writes its token into the ledger whenever it has the lock."""
    if not shutil.which("pkg-config") or subprocess.run(["pkg-config", "--exists", "libpq"],
                                                        check=False).returncode:
        pytest.skip("libpq is not installed (as root: apt install libpq-dev pkg-config)")
    bank.sql("ALTER TABLE ledger ADD writer text")
    # A writer that is frozen in a transaction would keep the next one waiting.
    bank.sql(f"ALTER DATABASE {bank.name} SET idle_in_transaction_session_timeout = '2s'")
    example = program.compile("conf/examples/tokens/ledger.c",
                              *run("pkg-config", "--cflags", "--libs", "libpq").split())

    def start(name):
        n = len(shared_cluster.range("ledger/"))
        started = Daemon(tmp_path / f"{name}.log", example, "dbname=" + bank.name, name,
                         TENURE_ENDPOINTS=shared_cluster.endpoints, **bank.environment).start()
        eventually(lambda: len(shared_cluster.range("ledger/")) == n + 1)
        return started

    return start


def wrote(bank, by):
    return int(bank.sql(f"SELECT count(*) FROM ledger WHERE writer = '{by}'"))


def assert_in_order(bank):
    tokens = list(map(int, bank.sql("SELECT token FROM ledger ORDER BY id").split()))
    assert tokens == sorted(tokens)


def test_the_tokens_of_tenurectl_and_of_programs_compare(
        agent, shared_cluster, bank, writer, tmp_path):
    shared_cluster.put("ledger/1", "")  # as etcdctl has the lock
    insert = ("SELECT tenure.check_token('ledger', $TENURE_TOKEN); INSERT INTO ledger "
              "(token, writer) VALUES ($TENURE_TOKEN, 'job')")
    job = Daemon(tmp_path / "job.log", BIN / "tenurectl", f"--bus={agent.bus.address}", "lock",
                 "ledger", "--", "sh", "-c", f'psql -Xc "{insert}"', **bank.environment).start()
    eventually(lambda: len(shared_cluster.range("ledger/")) == 2)
    program = writer("a")

    shared_cluster.delete("ledger/1")

    assert job.wait() == 0
    eventually(lambda: wrote(bank, "a"))
    assert_in_order(bank)
    program.kill()
    shared_cluster.delete("ledger/", "--prefix")


def test_a_writer_that_was_frozen_in_the_middle_of_its_work_changes_nothing_later(
        shared_cluster, bank, writer):
    first = writer("a")
    eventually(lambda: wrote(bank, "a"))
    second = writer("b")

    first.freeze()
    eventually(lambda: wrote(bank, "b"))
    before = wrote(bank, "a")
    first.thaw()

    eventually(lambda: "not my turn" in first.text())
    assert wrote(bank, "a") == before
    assert_in_order(bank)
    first.kill()
    second.kill()
    shared_cluster.delete("ledger/", "--prefix")
