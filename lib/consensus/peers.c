#include "consensus/peers.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/conf.h"
#include "base/hash.h"
#include "base/log.h"
#include "consensus/peers_internal.h"
#include "loop/listener.h"

/* The default limits of the bytes that are queued for a link. Beyond the first, no more entries
 * are read from the log, so that memory holds them only once for all links; beyond the second,
 * frames are dropped. */
#define TX_FULL ((size_t) 4 << 20)
#define TX_MAX ((size_t) 16 << 20)
#define RESERVE 64 /* descriptors for the log and so on */

void peers_refuse(struct peers *p, const char *kind, uint64_t id, const char *at,
                  const char *why)
{
        uint64_t cause = hash_add(HASH_START, kind, strlen(kind));

        cause = hash_end(hash_add(hash_add(cause, &id, sizeof(id)), why, strlen(why)));
        if (admission_tell(&p->cfg.admission, cause, loop_now(p->loop)))
                log_warning("Refused %s member %016" PRIx64 " at %s: %s.", kind, id, at, why);
}

void peers_sweep(struct peers *p, bool (*wanted)(void *userdata, uint64_t id))
{
        struct link_out *o, *o_next;
        struct link_in *i, *i_next;

        LIST_FOREACH_SAFE (o, &p->out, next, o_next)
                if (!wanted(p->userdata, o->id))
                        peers_out_free(o);
        LIST_FOREACH_SAFE (i, &p->in, next, i_next)
                if (i->caller == CALLER_MEMBER && !peers_out_of(p, i->id) &&
                    !peers_in_refuse(i))
                        peers_in_free(i);
}

static void listen_no_more(struct peers *p)
{
        for (size_t i = 0; i < p->n_ports; i++)
                listener_free(p->ports[i].listener);
        p->n_ports = 0;
}

int peers_listen(struct peers *p, bool on, char *err, size_t err_size)
{
        const char *cursor = p->cfg.listen_urls;
        char item[320];
        struct url u;
        int r;

        if (!on || p->stopped)
                listen_no_more(p);
        if (!on || p->stopped || p->n_ports > 0)
                return 0;
        while (list_next(&cursor, item, sizeof(item))) {
                struct port *port = &p->ports[p->n_ports];

                r = p->n_ports == ARRAY_SIZE(p->ports) ? -E2BIG : url_parse(item, &u);
                if (r == 0 && u.tls && !p->cfg.tls_server)
                        r = -EINVAL;
                if (r == 0) {
                        *port = (struct port){.peers = p, .tls = u.tls};
                        r = listener_new(&port->listener, p->loop, &u, peers_in_accept, port);
                        if (r == 0)
                                listener_set_reserve(port->listener, RESERVE);
                }
                if (r < 0) {
                        listen_no_more(p);
                        snprintf(err, err_size, "cannot listen for peers on %s: %s", item,
                                 strerror(-r));
                        return r;
                }
                p->n_ports++;
        }
        return 0;
}

int peers_new(struct peers **ret, struct loop *l, struct resolver *rv,
              const struct peers_config *cfg, const struct peers_ops *ops, void *userdata)
{
        struct peers *p = calloc(1, sizeof(*p));

        if (!p)
                return -ENOMEM;
        p->loop = l;
        p->resolver = rv;
        p->cfg = *cfg;
        p->cfg.tx_full = cfg->tx_full > 0 ? cfg->tx_full : TX_FULL;
        p->cfg.tx_max = cfg->tx_max > 0 ? cfg->tx_max : TX_MAX;
        p->ops = ops;
        p->userdata = userdata;
        LIST_INIT(&p->out);
        LIST_INIT(&p->in);
        *ret = p;
        return 0;
}

void peers_stop(struct peers *p)
{
        struct link_out *o;
        struct link_in *i;

        p->stopped = true;
        listen_no_more(p);
        while ((i = LIST_FIRST(&p->in)))
                peers_in_free(i);
        while ((o = LIST_FIRST(&p->out)))
                peers_out_free(o);
}

struct peers *peers_free(struct peers *p)
{
        if (!p)
                return NULL;
        peers_stop(p);
        free(p);
        return NULL;
}
