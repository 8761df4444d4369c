#include "loop/tls_socket.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

static BIO_METHOD *method;

/* What a BIO points to: its descriptor, and in the lowest bit whether the last read found the
 * socket empty. */
static void set(BIO *b, int fd, bool empty)
{
        BIO_set_data(b, (void *) (((intptr_t) fd << 1) | empty));
}

static int fd_of(BIO *b)
{
        return (int) ((intptr_t) BIO_get_data(b) >> 1);
}

static int on_write(BIO *b, const char *bytes, int len)
{
        int n = (int) send(fd_of(b), bytes, (size_t) len, MSG_NOSIGNAL);

        BIO_clear_retry_flags(b);
        if (n < 0 && BIO_sock_should_retry(n))
                BIO_set_retry_write(b);
        return n;
}

static int on_read(BIO *b, char *bytes, int len)
{
        int n = (int) recv(fd_of(b), bytes, (size_t) len, 0);

        BIO_clear_retry_flags(b);
        set(b, fd_of(b), n < 0 && errno == EAGAIN);
        if (n < 0 && BIO_sock_should_retry(n))
                BIO_set_retry_read(b);
        else if (n == 0)
                BIO_set_flags(b, BIO_FLAGS_IN_EOF);
        return n;
}

static long on_ctrl(BIO *b, int cmd, long arg unused_, void *p unused_)
{
        if (cmd == BIO_CTRL_EOF)
                return BIO_test_flags(b, BIO_FLAGS_IN_EOF) != 0;
        return cmd == BIO_CTRL_FLUSH; /* nothing is buffered here */
}

static void make_method(void)
{
        BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");

        if (m && BIO_meth_set_write(m, on_write) && BIO_meth_set_read(m, on_read) &&
            BIO_meth_set_ctrl(m, on_ctrl))
                method = m;
        else
                BIO_meth_free(m);
}

int tls_socket_set(struct ssl_st *ssl, int fd)
{
        static CRYPTO_ONCE once = CRYPTO_ONCE_STATIC_INIT; /* programs may have threads */
        BIO *b;

        if (!CRYPTO_THREAD_run_once(&once, make_method) || !method)
                return -ENOMEM;
        b = BIO_new(method);
        if (!b)
                return -ENOMEM;
        set(b, fd, false);
        BIO_set_init(b, 1);
        SSL_set_bio(ssl, b, b);
        return 0;
}

bool tls_socket_is_empty(const struct ssl_st *ssl)
{
        BIO *b = SSL_get_rbio(ssl);

        return BIO_method_type(b) == BIO_TYPE_NULL || ((intptr_t) BIO_get_data(b) & 1);
}
