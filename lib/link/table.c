#include "link/table.h"

#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <stdio.h>

#include "base/url.h"

#define SUBNET_MAX 128

static int order(int a, int b)
{
        return (a > b) - (a < b);
}

static int link_cmp(const struct link *a, const struct link *b)
{
        return order(a->index, b->index);
}

static int address_cmp(const struct address *a, const struct address *b)
{
        int c = order(a->index, b->index);

        if (c == 0)
                c = order(a->family, b->family);
        if (c == 0)
                c = order(a->prefix_len, b->prefix_len);
        return c ? c : memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

TREE_GENERATE(link_tree, link, by_index, link_cmp)
TREE_GENERATE(address_tree, address, by_id, address_cmp)

void link_table_init(struct link_table *t)
{
        *t = (struct link_table){0};
        RB_INIT(&t->links);
        RB_INIT(&t->ids);
        TAILQ_INIT(&t->addresses);
}

static void drop_link(struct link_table *t, struct link *k)
{
        RB_REMOVE(link_tree, &t->links, k);
        free(k);
}

static void drop_address(struct link_table *t, struct address *a)
{
        TAILQ_REMOVE(&t->addresses, a, entry);
        RB_REMOVE(address_tree, &t->ids, a);
        free(a);
}

void link_table_fini(struct link_table *t)
{
        struct link *k;
        struct address *a;

        while ((k = RB_ROOT(&t->links)))
                drop_link(t, k);
        while ((a = TAILQ_FIRST(&t->addresses)))
                drop_address(t, a);
}

static struct link *find(const struct link_table *t, int index)
{
        struct link like = {.index = index};

        return RB_FIND(link_tree, (struct link_tree *) (uintptr_t) &t->links, &like);
}

const struct link *link_table_find(const struct link_table *t, int index)
{
        return find(t, index);
}

/* ---- messages ---- */

struct attributes {
        const struct nlattr
                *of[IFA_FLAGS + 1]; /* we read more attributes of addresses than of links */
};

static int on_attribute(const struct nlattr *attr, void *userdata)
{
        struct attributes *a = userdata;
        uint16_t type = mnl_attr_get_type(attr);

        if (type < ARRAY_SIZE(a->of))
                a->of[type] = attr;
        return MNL_CB_OK;
}

static int feed_link(struct link_table *t, const struct nlmsghdr *h)
{
        const struct ifinfomsg *i = mnl_nlmsg_get_payload(h);
        struct attributes a = {0};
        struct link *k = find(t, i->ifi_index), was;
        bool gone = h->nlmsg_type == RTM_DELLINK;

        if (i->ifi_family != AF_UNSPEC)
                return 0; /* a link has become, or ceased to be, the port of a bridge */
        if (mnl_attr_parse(h, sizeof(*i), on_attribute, &a) < 0)
                return -EBADMSG;
        if (gone && !k)
                return 0;
        if (gone) {
                drop_link(t, k);
                return LINK_CHANGED;
        }
        if (!k) {
                k = calloc(1, sizeof(*k));
                if (!k) {
                        t->failed = true;
                        return 0;
                }
                k->index = i->ifi_index;
                RB_INSERT(link_tree, &t->links, k);
        }
        was = *k;
        k->carrier = (i->ifi_flags & IFF_UP) && (i->ifi_flags & IFF_LOWER_UP);
        k->loopback = i->ifi_flags & IFF_LOOPBACK;
        k->seen = true;
        if (a.of[IFLA_IFNAME] && mnl_attr_validate(a.of[IFLA_IFNAME], MNL_TYPE_NUL_STRING) >= 0)
                snprintf(k->name, sizeof(k->name), "%s", mnl_attr_get_str(a.of[IFLA_IFNAME]));
        return (was.carrier != k->carrier || strcmp(was.name, k->name) != 0 ? LINK_CHANGED
                                                                            : 0) |
               (!was.carrier && k->carrier && !k->loopback ? LINK_PATH : 0);
}

static int feed_address(struct link_table *t, const struct nlmsghdr *h)
{
        const struct ifaddrmsg *i = mnl_nlmsg_get_payload(h);
        size_t n = i->ifa_family == AF_INET ? 4 : 16;
        const struct nlattr *at;
        struct attributes a = {0};
        struct address like = {.index = (int) i->ifa_index,
                               .family = i->ifa_family,
                               .prefix_len = i->ifa_prefixlen},
                       *f;
        uint32_t flags = i->ifa_flags;
        bool usable, was_usable;

        if (i->ifa_family != AF_INET && i->ifa_family != AF_INET6)
                return 0;
        if (mnl_attr_parse(h, sizeof(*i), on_attribute, &a) < 0)
                return -EBADMSG;
        /* On a point-to-point link IFA_ADDRESS is the other side. */
        at = a.of[IFA_LOCAL] ? a.of[IFA_LOCAL] : a.of[IFA_ADDRESS];
        if (!at || mnl_attr_get_payload_len(at) != n)
                return -EBADMSG;
        if (a.of[IFA_FLAGS] && mnl_attr_validate(a.of[IFA_FLAGS], MNL_TYPE_U32) >= 0)
                flags = mnl_attr_get_u32(a.of[IFA_FLAGS]);
        memcpy(like.bytes, mnl_attr_get_payload(at), n);
        f = RB_FIND(address_tree, &t->ids, &like);
        if (h->nlmsg_type == RTM_DELADDR) {
                if (!f)
                        return 0;
                drop_address(t, f);
                return LINK_CHANGED;
        }
        if (!f) {
                f = malloc(sizeof(*f));
                if (!f) {
                        t->failed = true;
                        return 0;
                }
                *f = like;
                RB_INSERT(address_tree, &t->ids, f);
                TAILQ_INSERT_TAIL(&t->addresses, f, entry);
        }
        was_usable = f->usable;
        usable = !(flags & (IFA_F_TENTATIVE | IFA_F_DEPRECATED | IFA_F_DADFAILED));
        f->usable = usable;
        f->scope = i->ifa_scope;
        f->seen = true;
        return was_usable == usable ? 0 : LINK_CHANGED | (usable ? LINK_PATH : 0);
}

static int feed_route(const struct nlmsghdr *h)
{
        const struct rtmsg *r = mnl_nlmsg_get_payload(h);

        return h->nlmsg_type == RTM_NEWROUTE && r->rtm_type == RTN_UNICAST ? LINK_PATH : 0;
}

int link_table_feed(struct link_table *t, const void *message, size_t len)
{
        const struct nlmsghdr *h = message;
        size_t n;

        if (len > INT32_MAX || !mnl_nlmsg_ok(h, (int) len))
                return -EBADMSG;
        n = mnl_nlmsg_get_payload_len(h);
        switch (h->nlmsg_type) {
        case NLMSG_DONE: /* a dump that ended early has a negative errno here */
                t->failed |= n >= sizeof(int) && *(const int *) mnl_nlmsg_get_payload(h) < 0;
                return 0;
        case RTM_NEWLINK:
        case RTM_DELLINK:
                return n < sizeof(struct ifinfomsg) ? -EBADMSG : feed_link(t, h);
        case RTM_NEWADDR:
        case RTM_DELADDR:
                return n < sizeof(struct ifaddrmsg) ? -EBADMSG : feed_address(t, h);
        case RTM_NEWROUTE:
                return n < sizeof(struct rtmsg) ? -EBADMSG : feed_route(h);
        default:
                return 0;
        }
}

void link_table_dump_begin(struct link_table *t)
{
        struct link *k;
        struct address *a;

        t->failed = false;
        RB_FOREACH (k, link_tree, &t->links)
                k->seen = false;
        TAILQ_FOREACH (a, &t->addresses, entry)
                a->seen = false;
}

bool link_table_dump_end(struct link_table *t)
{
        struct link *k, *k_next;
        struct address *a, *a_next;
        bool any = false;

        RB_FOREACH_SAFE (k, link_tree, &t->links, k_next)
                if (!k->seen) {
                        drop_link(t, k);
                        any = true;
                }
        TAILQ_FOREACH_SAFE (a, &t->addresses, entry, a_next)
                if (!a->seen) {
                        drop_address(t, a);
                        any = true;
                }
        return any;
}

/* ---- the choice ---- */

static bool is_good(const struct link_table *t, const struct address *a)
{
        const struct link *k = find(t, a->index);

        return a->usable && a->scope == RT_SCOPE_UNIVERSE && k && k->carrier && !k->loopback;
}

static const char *text_of(const struct address *a, char out[static INET6_ADDRSTRLEN])
{
        return inet_ntop(a->family, a->bytes, out, INET6_ADDRSTRLEN);
}

bool link_table_has(const struct link_table *t, const char *text)
{
        char own[INET6_ADDRSTRLEN];
        const struct address *a;

        TAILQ_FOREACH (a, &t->addresses, entry)
                if (is_good(t, a) && strcmp(text_of(a, own), text) == 0)
                        return true;
        return false;
}

static bool subnet_parse(const char *s, uint8_t *family, uint8_t bytes[static 16],
                         unsigned *prefix_len)
{
        char text[SUBNET_MAX], *slash, *end;
        unsigned long n;

        if (strlen(s) >= sizeof(text))
                return false;
        strcpy(text, s);
        slash = strchr(text, '/');
        if (!slash)
                return false;
        *slash = '\0';
        n = strtoul(slash + 1, &end, 10);
        if (slash[1] < '0' || slash[1] > '9' || *end)
                return false;
        *family = strchr(text, ':') ? AF_INET6 : AF_INET;
        *prefix_len = (unsigned) n;
        return n <= (*family == AF_INET ? 32 : 128) && inet_pton(*family, text, bytes) == 1;
}

static bool in_subnet(const struct address *a, uint8_t family, const uint8_t *bytes,
                      unsigned prefix_len)
{
        unsigned whole = prefix_len / 8, rest = prefix_len % 8;

        if (a->family != family || memcmp(a->bytes, bytes, whole) != 0)
                return false;
        return rest == 0 ||
               ((a->bytes[whole] ^ bytes[whole]) & (0xff << (8 - rest)) & 0xff) == 0;
}

static bool is_loopback(const char *text)
{
        return strncmp(text, "127.", 4) == 0 || strcmp(text, "::1") == 0 ||
               strncmp(text, "::ffff:127.", 11) == 0;
}

/* Appends @text, unless it is there already or does not fit. */
static void add(char *out, size_t size, const char *text)
{
        size_t n = strlen(out), k = strlen(text);

        for (const char *p = out; (p = strstr(p, text)); p += k)
                if ((p == out || p[-1] == ',') && (p[k] == ',' || p[k] == '\0'))
                        return;
        if (n + k + 2 <= size)
                snprintf(out + n, size - n, "%s%s", n ? "," : "", text);
}

bool link_choice_is_valid(const char *item)
{
        uint8_t family, bytes[16];
        unsigned prefix_len;

        if (strcmp(item, "core") == 0)
                return true;
        if (strncmp(item, "interface:", 10) == 0)
                return strlen(item) > 10 && strlen(item) < 10 + 16;
        if (strchr(item, '/'))
                return subnet_parse(item, &family, bytes, &prefix_len);
        if (strchr(item, ':'))
                return inet_pton(AF_INET6, item, bytes) == 1;
        return strlen(item) < 64 && host_is_valid(item, strlen(item));
}

void link_table_choose(const struct link_table *t, const char *wanted, const char *source,
                       char *out, size_t size)
{
        char text[INET6_ADDRSTRLEN], item[SUBNET_MAX];
        bool know_source = *source && !is_loopback(source);
        uint8_t family, bytes[16];
        unsigned prefix_len;
        const struct address *a;

        out[0] = '\0';
        while (*wanted) {
                size_t n = strcspn(wanted, ",");
                bool core, interface, subnet;

                snprintf(item, sizeof(item), "%.*s", (int) n, wanted);
                wanted += n + (wanted[n] == ',');
                core = strcmp(item, "core") == 0;
                interface = strncmp(item, "interface:", 10) == 0;
                subnet = !core && !interface && subnet_parse(item, &family, bytes, &prefix_len);
                if (core && know_source) {
                        add(out, size, source);
                } else if (!core && !interface && !subnet) {
                        add(out, size, item);
                } else {
                        TAILQ_FOREACH (a, &t->addresses, entry) {
                                const struct link *k = find(t, a->index);

                                if (!is_good(t, a) ||
                                    (interface && strcmp(k->name, item + 10) != 0) ||
                                    (subnet && !in_subnet(a, family, bytes, prefix_len)))
                                        continue;
                                add(out, size, text_of(a, text));
                                if (core)
                                        break;
                        }
                }
        }
}
