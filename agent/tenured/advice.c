#include "advice.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "root_object.h"

/* ---- the record, and its file ---- */

static void load(struct measured *m, struct boot_time now)
{
        char line[EVIDENCE_LINE + 1] = "";

        for (off_t at = 0; pread(m->fd, line, EVIDENCE_LINE, at) == EVIDENCE_LINE;
             at += EVIDENCE_LINE)
                if (*line && evidence_read(m->evidence, line, now) < 0)
                        log_debug("Ignored a minute of renewals of an earlier run: it is not "
                                  "of the last day.");
}

int measured_init(struct measured *m, struct boot_time now)
{
        char path[RUNTIME_PATH_MAX];

        m->evidence = calloc(1, sizeof(*m->evidence));
        if (!m->evidence)
                return -ENOMEM;
        m->minute = evidence_minute_at(now);
        if (!runtime_path("renewals", path))
                return 0;
        m->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (m->fd < 0)
                log_warning("%s: cannot open it: %s. A restart will forget how long renewals "
                            "took.",
                            path, strerror(errno));
        else
                load(m, now);
        return 0;
}

/* A minute has the same slot in the file as in memory. */
static void save(struct measured *m)
{
        size_t i = m->minute % EVIDENCE_MINUTES;
        char line[EVIDENCE_LINE + 1];

        if (m->fd < 0 || !evidence_write(m->evidence, i, line))
                return;
        errno = ENOSPC; /* a short write means that the disk is full */
        if (pwrite(m->fd, line, EVIDENCE_LINE, (off_t) (i * EVIDENCE_LINE)) == EVIDENCE_LINE) {
                m->failing = false;
                return;
        }
        if (!m->failing)
                log_warning("Cannot save for a restart how long renewals took: %s.",
                            strerror(errno));
        m->failing = true;
}

void measured_fini(struct measured *m)
{
        if (!m->evidence)
                return;
        save(m);
        if (m->fd >= 0)
                close(m->fd);
        free(m->evidence);
        *m = (struct measured){.fd = -1};
}

void measured_run(struct measured *m, struct boot_time now)
{
        if (evidence_minute_at(now) == m->minute)
                return;
        save(m);
        m->minute = evidence_minute_at(now);
}

void measured_renewed(struct measured *m, const struct session_renewal *r, const char *endpoint)
{
        evidence_renewed(m->evidence, r);
        if (strcmp(endpoint, m->endpoint) == 0)
                return;
        if (*m->endpoint)
                evidence_moved(m->evidence, r->acknowledged);
        snprintf(m->endpoint, sizeof(m->endpoint), "%s", endpoint);
}

/* ---- the advice ---- */

static struct advice_terms terms(const struct agent *a)
{
        const struct session *s = member_session(a->member);
        struct advice_terms t = {
                .ttl = session_ttl(s), .retry = s->cfg.retry, .drift_ppm = s->cfg.drift_ppm};

        if (a->pid1 && *a->opt.held_target)
                t.fencing = options_fencing(&a->opt);
        return t;
}

static uint64_t usec(nsec_t t)
{
        return (uint64_t) (t / NSEC_PER_USEC);
}

static int append_figures(sd_bus_message *m, const struct advice_terms *t,
                          const struct advice *a)
{
        const struct {
                const char *name;
                uint64_t value;
        } figures[] = {
                {"TTLUSec", usec(t->ttl)},
                {"FenceLeadUSec", usec(fencing_lead(&t->fencing, t->ttl))},
                {"Renewals", a->renewals},
                {"Minutes", a->minutes},
                {"SpanUSec", usec(a->span)},
                {"RoundTripUSec", usec(a->round_trip)},
                {"RoundTripMaxUSec", usec(a->round_trip_max)},
                {"LateMaxUSec", usec(a->late_max)},
                {"StallMaxUSec", usec(a->stall_max)},
                {"GapMaxUSec", usec(a->gap_max)},
                {"Jeopardies", a->jeopardies},
                {"Losses", a->losses},
                {"EndpointChanges", a->moves},
                {"LeastUSec", usec(a->least)},
                {"RecommendedUSec", usec(a->recommended)},
        };
        int r = sd_bus_message_open_container(m, 'a', "{sv}");

        for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(figures); i++)
                r = sd_bus_message_append(m, "{sv}", figures[i].name, "t", figures[i].value);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

int method_advise_ttl(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        struct agent *a = userdata;
        struct advice_terms t = terms(a);
        struct advice advice;
        int r;

        evidence_advise(a->measured.evidence, &t, boot_now(), &advice);
        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = append_figures(reply, &t, &advice);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(txu)");
        for (size_t i = 0; r >= 0 && i < advice.n_ttls; i++) {
                const struct advice_ttl *row = &advice.ttls[i];

                r = sd_bus_message_append(reply, "(txu)", usec(row->ttl),
                                          row->bridges / NSEC_PER_USEC, row->too_long);
        }
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}
