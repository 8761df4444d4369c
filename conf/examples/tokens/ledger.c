/*
 * One of several writers, of which the database accepts only one: the writer that has the lock
 * `ledger` adds to the table `ledger`, and each transaction checks the token of the lock
 * (tokens.sql). A writer that is delayed between its check of the lock and its commit, for
 * however long, cannot change what the next holder already relies on.
 *
 * cc ledger.c $(pkg-config --cflags --libs libtenure libpq)
 * usage: ledger CONNECTION [NAME]     CONNECTION: such as "dbname=bank"; with NAME by a lease
 *                                     of its own, without it by the host's place
 */
#include <libpq-fe.h>
#include <stdio.h>
#include <string.h>
#include <tenure.h>
#include <time.h>

#define REFUSED "TN001"

static int fail(struct tenure *t)
{
        fprintf(stderr, "ledger: %s.\n", tenure_error(t));
        tenure_free(t);
        return 1;
}

/* Stands for work that takes time before each write. */
static void work(void)
{
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

/* Returns whether the statement succeeded; if not, *@refused: because of the token. */
static bool run(PGconn *db, const char *sql, const char *const *values, int n, bool *refused)
{
        PGresult *r = PQexecParams(db, sql, n, NULL, values, NULL, NULL, 0);
        ExecStatusType s = PQresultStatus(r);
        const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
        bool done = s == PGRES_COMMAND_OK || s == PGRES_TUPLES_OK;

        *refused = state && strcmp(state, REFUSED) == 0;
        if (!done)
                fprintf(stderr, "ledger: %s", PQerrorMessage(db));
        PQclear(r);
        return done;
}

static void write_once(PGconn *db, long long token, const char *by)
{
        char text[24];
        const char *values[] = {text, by};
        bool refused = false, done;

        snprintf(text, sizeof(text), "%lld", token);
        done = run(db, "BEGIN", NULL, 0, &refused) &&
               run(db, "SELECT tenure.check_token('ledger', $1)", values, 1, &refused) &&
               run(db, "INSERT INTO ledger (token, writer) VALUES ($1, $2)", values, 2,
                   &refused) &&
               run(db, "COMMIT", NULL, 0, &refused);
        if (done)
                printf("wrote with %s\n", text);
        else if (refused)
                printf("refused with %s\n", text);
        if (!done && PQtransactionStatus(db) != PQTRANS_IDLE)
                PQclear(PQexec(db, "ROLLBACK"));
}

int main(int argc, char **argv)
{
        const struct tenure_event *e;
        struct tenure_lock *lock;
        struct tenure *t;
        long long token;
        PGconn *db;
        int r;

        if (argc < 2 || tenure_new(&t) < 0)
                return 1;
        db = PQconnectdb(argv[1]);
        if (PQstatus(db) != CONNECTION_OK) {
                fprintf(stderr, "ledger: %s", PQerrorMessage(db));
                return 1;
        }
        r = argc > 2 ? tenure_hold_own(t, 2000, argv[2]) : tenure_hold_with_agent(t);
        if (r == 0)
                r = tenure_lock(t, "ledger", argc > 2 ? argv[2] : "", &lock);
        if (r == 0)
                r = tenure_start(t);
        if (r < 0)
                return fail(t);
        setvbuf(stdout, NULL, _IOLBF, 0);
        while (tenure_wait(t, tenure_lock_is_held(lock) ? 0 : -1) >= 0) {
                while ((e = tenure_pop_event(t)))
                        if (e->type == TENURE_LOCKED)
                                printf("my turn, token %lld\n",
                                       (long long) tenure_lock_token(lock));
                        else if (e->type == TENURE_UNLOCKED)
                                printf("not my turn: %s\n", e->reason);
                if (!tenure_lock_is_held(lock))
                        continue;
                /* Write with the token that was held when the work began. */
                token = tenure_lock_token(lock);
                work();
                write_once(db, token, argc > 2 ? argv[2] : "host");
                if (PQstatus(db) != CONNECTION_OK)
                        PQreset(db);
        }
        PQfinish(db);
        return fail(t);
}
