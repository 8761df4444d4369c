"""TLS by OpenSSL itself, since Python's module does not hand all of it on; and TLS 1.2 by hand,
once OpenSSL has shaken hands: records that no library would send (RFC 5246, RFC 5288)."""
import ctypes
import hmac
import socket
import struct

from harness.h2 import HELLO, settings

HANDSHAKE, VERSION, PEM = 22, 0x303, 1
CIPHERS = b"ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256"
SAID = HELLO + settings()
Pointer = ctypes.c_void_p
tls, crypto = ctypes.CDLL("libssl.so.3"), ctypes.CDLL("libcrypto.so.3")
for _f in (tls.TLS_client_method, tls.SSL_CTX_new, tls.SSL_new, tls.SSL_get_session, tls.BIO_s_mem,
           tls.BIO_new, crypto.EVP_CIPHER_CTX_new, crypto.EVP_aes_128_gcm):
    _f.restype = Pointer


class Connection:
    """Has shaken hands, and said hello in HTTP/2. @certificate: as of harness/authority.py."""

    def __init__(self, address, certificate, version=0):
        context = Pointer(tls.SSL_CTX_new(Pointer(tls.TLS_client_method())))
        tls.SSL_CTX_ctrl(context, 124, version, None)  # SSL_CTX_set_max_proto_version()
        tls.SSL_CTX_set_cipher_list(context, CIPHERS)
        tls.SSL_CTX_set_alpn_protos(context, b"\x02h2", 3)
        tls.SSL_CTX_use_certificate_file(context, bytes(certificate.cert), PEM)
        tls.SSL_CTX_use_PrivateKey_file(context, bytes(certificate.key), PEM)
        self.socket = socket.create_connection(address)
        self.ssl = Pointer(tls.SSL_new(context))
        tls.SSL_CTX_free(context)
        tls.SSL_set_fd(self.ssl, self.socket.fileno())
        if tls.SSL_connect(self.ssl) != 1 or tls.SSL_write(self.ssl, SAID, len(SAID)) != len(SAID):
            self.close()
            raise ConnectionError

    def close(self):
        tls.SSL_free(self.ssl)
        self.socket.close()


def expand(secret, label, seed, n):  # RFC 5246, 5: the PRF
    out, a = b"", label + seed
    while len(out) < n:
        a = hmac.digest(secret, a, "sha256")
        out += hmac.digest(secret, a + label + seed, "sha256")
    return out[:n]


class ByHand(Connection):
    """What it writes from now on goes past OpenSSL."""

    def __init__(self, address, certificate):
        super().__init__(address, certificate, VERSION)
        ours, theirs, secret = (ctypes.create_string_buffer(n) for n in (32, 32, 48))
        tls.SSL_get_client_random(self.ssl, ours, 32)
        tls.SSL_get_server_random(self.ssl, theirs, 32)
        tls.SSL_SESSION_get_master_key(Pointer(tls.SSL_get_session(self.ssl)), secret, 48)
        keys = expand(secret.raw, b"key expansion", theirs.raw + ours.raw, 40)
        self.salt, self.sequence = keys[32:36], 2  # Finished, and the hello
        self.cipher = Pointer(crypto.EVP_CIPHER_CTX_new())
        crypto.EVP_EncryptInit_ex(self.cipher, Pointer(crypto.EVP_aes_128_gcm()), None, keys[:16],
                                  None)

    def record(self, kind, body):
        n = ctypes.c_int()
        out, tag = ctypes.create_string_buffer(len(body)), ctypes.create_string_buffer(16)
        explicit = struct.pack(">Q", self.sequence)
        beside = explicit + struct.pack(">BHH", kind, VERSION, len(body))
        crypto.EVP_EncryptInit_ex(self.cipher, None, None, None, self.salt + explicit)
        for to, what in (None, beside), (out, body):
            crypto.EVP_EncryptUpdate(self.cipher, to, ctypes.byref(n), what, len(what))
        crypto.EVP_EncryptFinal_ex(self.cipher, tag, ctypes.byref(n))
        crypto.EVP_CIPHER_CTX_ctrl(self.cipher, 0x10, 16, tag)  # EVP_CTRL_AEAD_GET_TAG
        self.sequence += 1
        body = explicit + out.raw + tag.raw
        return struct.pack(">BHH", kind, VERSION, len(body)) + body

    def handshakes(self, n):
        """Asks for another handshake that often: the head of a ClientHello is enough."""
        return b"".join(self.record(HANDSHAKE, b"\1\0\0\0") for _ in range(n))
