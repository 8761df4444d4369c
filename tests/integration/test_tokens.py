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
from harness.program import Daemon, run
from harness.waiting import ProgramError, eventually

EXAMPLES = TOP / "conf/examples/tokens"
REFUSED = 3  # the exit status of append


# ---- a file ----

@pytest.fixture(scope="module")
def program_append(tmp_path_factory):
    program = tmp_path_factory.mktemp("append") / "append"
    run("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", program, EXAMPLES / "append.c")
    return program


@pytest.fixture
def file(tmp_path):
    return tmp_path / "file"


@pytest.fixture
def append(program_append, file):
    """append(token, text) returns the exit status and what was said."""
    def append(token, text):
        try:
            return 0, run(program_append, file, token, text)
        except ProgramError as error:
            return error.status, error.err

    return append


def test_a_file_refuses_a_token_smaller_than_one_that_it_has_seen(append, file):
    assert append(7, "first") == append(9, "second") == (0, "")
    status, said = append(7, "late")
    assert status == REFUSED and "the token 7 is refused: " in said and "has seen 9" in said
    assert append(9, "third") == (0, "")
    assert file.read_text() == "7 first\n9 second\n9 third\n"


def test_half_a_line_that_a_crash_has_left_has_never_been_written(append, file):
    file.write_text("9 third\n12 what a crash has le")
    assert append(10, "fourth") == (0, "")
    assert file.read_text() == "9 third\n10 fourth\n"


@pytest.mark.parametrize("token, text", [
    (0, "x"), ("x", "x"), (11, "two\nlines"), ("99999999999999999999", "x"),
    ("9223372036854775808", "x"), ("12x", "x"), (" 12", "x"), ("+12", "x"), ("0x12", "x"),
    ("-12", "x"), ("", "x")])
def test_what_is_not_wholly_understood_is_no_token_since_it_could_lock_everybody_out(
        append, file, token, text):
    append(10, "before")
    assert append(token, text)[0] == 1 and file.read_text() == "10 before\n"


@pytest.mark.parametrize("content", [
    "10 x\n99999999999999999999 x\n", "10 x\n11x\n", "no token\n", "\0" * 20000])
def test_a_file_of_something_else_is_left_alone(append, file, content):
    file.write_text(content)
    assert append(11, "x")[0] == 1 and file.read_text() == content


def test_a_writer_waits_for_the_one_before_it_and_is_refused_if_that_had_a_larger_token(
        append, program_append, file):
    append(10, "before")
    with open(file, "a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        late = Daemon(file.with_name("late"), program_append, file, "30", "late").start()
        waits = re.compile(f"-> FLOCK .*:{file.stat().st_ino} ")
        eventually(lambda: waits.search(Path("/proc/locks").read_text()))
        other.write("40 next\n")

    assert late.wait() == REFUSED
    assert file.read_text() == "10 before\n40 next\n"


def test_writers_that_append_at_once_leave_no_token_after_a_larger_one(
        program_append, file, tmp_path, seed):
    drawn = random.Random(seed)
    refused = 'for t; do "$0" file $t x || [ $? = 3 ] || exit 1; done'
    writers = [Daemon(tmp_path / f"writer{w}.log", "sh", "-c", refused, program_append,
                      *(i + drawn.randrange(40) for i in range(1, 101))).start() for w in range(4)]

    assert [writer.wait() for writer in writers] == [0] * 4
    tokens = [int(line.split()[0]) for line in file.read_text().splitlines()]
    assert tokens == sorted(tokens) and len(tokens) >= 20
    assert any("is refused" in writer.text() for writer in writers)


# ---- PostgreSQL ----

@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if not postgresql.is_installed():
        pytest.skip("PostgreSQL is not installed (as root: apt install postgresql)")
    with ledger.lasting():
        server = postgresql.PostgreSQL(tmp_path_factory.mktemp("postgresql") / "postgresql.log")
    install(server.database("template1"))
    server.database("postgres").sql("CREATE ROLE careless LOGIN; CREATE ROLE \"Bank-Owner\" LOGIN")
    yield server
    server.end_of_all()


def install(database):
    database.psql("-f", EXAMPLES / "tokens.sql")


@pytest.fixture
def bank(server):
    """A database with tokens.sql, and a table for what is written."""
    bank = server.new_database()
    bank.sql("CREATE TABLE ledger (id bigserial PRIMARY KEY, token bigint, writer text)")
    return bank


@pytest.fixture
def guarded(bank):
    """The bank with a table "guarded", which has the trigger."""
    guard(bank, "CREATE TABLE guarded (n int)", "guarded")
    return bank


@pytest.fixture
def old(bank, tmp_path):
    return postgresql.Session(bank, tmp_path)


@pytest.fixture
def new(bank, tmp_path):
    return postgresql.Session(bank, tmp_path)


def check(token, resource="r"):
    return f"SELECT tenure.check_token('{resource}', {token});"


def write(token):
    return f"{check(token)} INSERT INTO ledger (token) VALUES ({token});"


def write_what_is_seen(token):
    """The sum of what is in the ledger, and a thousand."""
    return f"{check(token)} INSERT INTO ledger (token) SELECT 1000 + sum(token) FROM ledger;"


def seen(database, resource="r"):
    return int(database.sql(f"SELECT token FROM tenure.tokens WHERE resource = '{resource}'"))


def written(bank, by=None):
    """Tokens, in the order in which they were committed."""
    who = f"WHERE writer = '{by}'" if by else ""
    return [int(token) for token in bank.sql(f"SELECT token FROM ledger {who} ORDER BY id").split()]


def test_a_database_refuses_a_token_smaller_than_one_that_it_has_seen(bank):
    bank.sql(check(5) + check(7))
    assert 'the token 5 for the resource "r" is refused: 7 has been seen' in bank.refusal(check(5))
    bank.sql(check(5, "another"))
    assert "there is no token for the resource" in bank.refusal(check("NULL"))
    assert (seen(bank), seen(bank, "another")) == (7, 5)


@pytest.mark.parametrize("first, second, end, ledger_", [
    (8, 9, "COMMIT", [8, 1008]), (11, 10, "COMMIT", [11]), (20, 12, "ROLLBACK", [12])])
def test_the_second_transaction_waits_for_the_first_and_is_refused_if_that_committed_a_larger_token(
        bank, old, new, first, second, end, ledger_):
    old.sql("BEGIN; " + write(first))
    comes = new.begin("BEGIN; " + (write if end == "ROLLBACK" else write_what_is_seen)(second)
                      + "COMMIT;")
    eventually(lambda: bank.waiting() == 1)

    old.sql(end + ";")

    refused = f'TN001: the token {second} for the resource "r" is refused: {first} has been seen'
    assert (refused in comes()) == (len(ledger_) == 1 and end == "COMMIT")
    assert (written(bank), seen(bank)) == (ledger_, max(second, ledger_[0]))


def test_two_transactions_of_one_holder_do_not_wait_for_each_other(old, new):
    old.sql(check(12))
    old.sql("BEGIN; " + check(12))
    assert new.sql(f"BEGIN; {check(12)} COMMIT;") == ""


def test_an_old_holder_at_repeatable_read_is_refused_too(old, new):
    old.sql(check(12) + "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;")
    new.sql(check(13))
    assert re.search("40001|TN001", old.sql(check(12) + "COMMIT;"))


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_whose_snapshot_is_older_than_its_token_is_refused(bank, old, new, level):
    """It has waited for the old holder, and would not see what that has left."""
    old.sql("BEGIN; " + write(5))
    first = new.begin(f"BEGIN ISOLATION LEVEL {level}; {write_what_is_seen(6)} COMMIT;")
    eventually(lambda: bank.waiting() == 1 or "TN003" in new.text())
    old.sql("COMMIT;")
    assert "TN003" in first() and written(bank) == [5]

    bank.sql(check(6))  # in a transaction of its own
    bank.with_settings(default_transaction_isolation=level.replace(" ", "\\ ")).sql(
        write_what_is_seen(6))
    assert written(bank) == [5, 1005]


def test_a_busy_old_holder_does_not_keep_the_next_one_out(bank, old, new, tmp_path):
    old.sql(check(5) + "BEGIN; " + check(5))
    comes = new.begin("BEGIN; " + check(6))
    eventually(lambda: bank.waiting() == 1)
    late = postgresql.Session(bank, tmp_path).begin(check(5))
    eventually(lambda: bank.waiting() == 2)  # it queues behind the next one

    old.sql("COMMIT;")

    assert "TN001" not in comes()
    new.sql("COMMIT;")
    assert "TN001" in late()


def test_writers_at_once_leave_no_token_after_a_larger_committed_one(bank, tmp_path):
    bank.sql("CREATE SEQUENCE numbers START 100")
    (tmp_path / "many.sql").write_text(100 * (
        "SELECT nextval('numbers') - (random() * 6)::int AS n \\gset\n"
        "BEGIN; SELECT tenure.check_token('r', :n) \\g /dev/null\n"
        "INSERT INTO ledger (token) VALUES (:n);\n"
        "SELECT CASE WHEN random() < 0.2 THEN 'ROLLBACK' ELSE 'COMMIT' END AS e \\gset\n:e;\n"))
    writers = [Daemon(tmp_path / f"many{n}.log", "psql", "-Xq", "-f", tmp_path / "many.sql",
                      **bank.environment).start() for n in range(4)]

    assert [writer.wait() for writer in writers] == [0] * 4
    tokens = written(bank)
    assert tokens == sorted(tokens) and tokens[-1] == seen(bank) and len(tokens) > 30
    said = "".join(writer.text() for writer in writers)
    assert "is refused" in said and "deadlock" not in said


# ---- who may lower a token ----

def test_default_privileges_let_nobody_lower_a_token(server):
    empty = server.new_database("TEMPLATE template0")
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
    for _ in "first", "again":
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


def test_a_role_that_was_not_let_in_can_write_by_the_trigger_and_lock_nobody_out(guarded):
    guarded.sql("GRANT ALL ON guarded TO careless")
    teller = guarded.seen_by("careless")
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


def test_a_table_with_the_trigger_takes_writes_with_a_token_that_is_not_too_old(guarded):
    assert 'there is no token for the resource "guarded"' in guarded.refusal(
        "INSERT INTO guarded VALUES (1)")
    guarded.with_settings(tenure__token=5).sql("INSERT INTO guarded VALUES (1)")
    guarded.with_settings(tenure__token=6).sql("UPDATE guarded SET n = 2")
    refuses(guarded, "guarded", 5, "INSERT INTO guarded VALUES (3)", "UPDATE guarded SET n = 3",
            "DELETE FROM guarded", "TRUNCATE guarded", "COPY guarded FROM PROGRAM 'echo 3'")
    assert guarded.sql("SELECT n FROM guarded") == "2"


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
             "FOR EACH ROW EXECUTE FUNCTION tenure.require_token('parted'); "
             "CREATE TABLE parted2 PARTITION OF parted FOR VALUES IN (2); "
             "GRANT ALL ON parted TO careless")
    bank.with_settings(tenure__token=6).sql("INSERT INTO parted VALUES (1, 1), (2, 2)")
    refuses(bank, "parted", 5, "INSERT INTO parted VALUES (3, 1)",
            "UPDATE parted SET part = 2 WHERE part = 1", "DELETE FROM parted", "TRUNCATE parted",
            "INSERT INTO parted2 VALUES (3, 2)", "UPDATE parted1 SET n = 3", "DELETE FROM parted2",
            "COPY parted2 FROM PROGRAM 'echo 3 2 | tr \" \" \"\\t\"'")
    assert bank.sql("SELECT n, part FROM parted ORDER BY n").split() == ["1|1", "2|2"]
    assert "permission denied for table parted1" in bank.seen_by("careless").with_settings(
        tenure__token=5).refusal("TRUNCATE parted1")


def test_a_pooled_connection_keeps_no_token_of_set_local(guarded, old):
    old.sql("BEGIN; SET LOCAL tenure.token = 6; INSERT INTO guarded VALUES (2); COMMIT;")
    assert "TN002" in old.sql("UPDATE guarded SET n = 3;")


@pytest.mark.parametrize("token", ["9223372036854775808", "0x10", "1e3", "-5", "abc", "9.0"])
def test_a_setting_that_is_no_whole_number_is_no_token(guarded, token):
    said = guarded.refusal(f"SET tenure.token = '{token}'; INSERT INTO guarded VALUES (1)")
    assert re.search("out of range|invalid input syntax|is no token", said)


def test_tokens_beyond_those_of_floating_point_are_not_rounded(guarded):
    guarded.with_settings(tenure__token=2**53 + 1).sql("INSERT INTO guarded VALUES (1)")
    refuses(guarded, "guarded", 2**53, "INSERT INTO guarded VALUES (2)")


# ---- holders ----

@pytest.fixture
def writer(bank, shared_cluster, program, tmp_path):
    """Starts the example, which writes its token into the ledger whenever it has the lock."""
    if not shutil.which("pkg-config") or subprocess.run(["pkg-config", "--exists", "libpq"],
                                                        check=False).returncode:
        pytest.skip("libpq is not installed (as root: apt install libpq-dev pkg-config)")
    # A writer that is frozen in a transaction would keep the next one waiting.
    bank.sql(f"ALTER DATABASE {bank.name} SET idle_in_transaction_session_timeout = '2s'")
    example = program.compile("conf/examples/tokens/ledger.c",
                              *run("pkg-config", "--cflags", "--libs", "libpq").split())
    started = []

    def start(name):
        n = len(shared_cluster.range("ledger/"))
        started.append(Daemon(tmp_path / f"{name}.log", example, "dbname=" + bank.name, name,
                              TENURE_ENDPOINTS=shared_cluster.endpoints,
                              **bank.environment).start())
        eventually(lambda: len(shared_cluster.range("ledger/")) == n + 1)
        return started[-1]

    yield start
    for daemon in started:
        daemon.kill()
    shared_cluster.delete("ledger/", "--prefix")


def assert_in_order(bank):
    tokens = written(bank)
    assert tokens == sorted(tokens)


def test_the_tokens_of_tenurectl_and_of_programs_compare(
        agent, shared_cluster, bank, writer, tmp_path):
    shared_cluster.put("ledger/1", "")  # as etcdctl has the lock
    insert = ("SELECT tenure.check_token('ledger', $TENURE_TOKEN); INSERT INTO ledger "
              "(token, writer) VALUES ($TENURE_TOKEN, 'job')")
    job = Daemon(tmp_path / "job.log", BIN / "tenurectl", f"--bus={agent.bus.address}", "lock",
                 "ledger", "--", "sh", "-c", f'psql -Xc "{insert}"', **bank.environment).start()
    eventually(lambda: len(shared_cluster.range("ledger/")) == 2)
    writer("a")

    shared_cluster.delete("ledger/1")

    assert job.wait() == 0
    eventually(lambda: written(bank, "a"))
    assert_in_order(bank)


def test_a_writer_that_was_frozen_in_the_middle_of_its_work_changes_nothing_later(bank, writer):
    first = writer("a")
    eventually(lambda: written(bank, "a"))
    writer("b")

    first.freeze()
    eventually(lambda: written(bank, "b"))
    before = written(bank, "a")
    first.thaw()

    eventually(lambda: "not my turn" in first.text())
    assert written(bank, "a") == before
    assert_in_order(bank)
