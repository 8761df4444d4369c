"""TLS 1.2 by hand, once OpenSSL has shaken hands: records that no library would send (RFC 5246, RFC 5288)."""
import ctypes
import hmac
import socket
import struct

from h2raw import HELLO, settings

HANDSHAKE = 22
VERSION = 0x303
CIPHERS = b"ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256"
Pointer = ctypes.c_void_p


def libraries():
    tls, crypto = ctypes.CDLL("libssl.so.3"), ctypes.CDLL("libcrypto.so.3")
    for f in (tls.TLS_client_method, tls.SSL_CTX_new, tls.SSL_new, tls.SSL_get_session, crypto.EVP_CIPHER_CTX_new, crypto.EVP_aes_128_gcm):
        f.restype = Pointer
    return tls, crypto


def expand(secret, label, seed, n):  # RFC 5246, 5: the PRF
    out, a = b"", label + seed
    while len(out) < n:
        a = hmac.digest(secret, a, "sha256")
        out += hmac.digest(secret, a + label + seed, "sha256")
    return out[:n]


class Client:
    """Has shaken hands, and said hello in HTTP/2. What it writes from then on goes past OpenSSL."""

    def __init__(self, host, port):
        self.tls, self.crypto = tls, crypto = libraries()
        context = Pointer(tls.SSL_CTX_new(Pointer(tls.TLS_client_method())))
        tls.SSL_CTX_ctrl(context, 124, VERSION, None)  # SSL_CTX_set_max_proto_version()
        tls.SSL_CTX_set_cipher_list(context, CIPHERS)
        tls.SSL_CTX_set_alpn_protos(context, b"\x02h2", 3)
        self.socket = socket.create_connection((host, port))
        self.ssl, hello = Pointer(tls.SSL_new(context)), HELLO + settings()
        tls.SSL_CTX_free(context)
        tls.SSL_set_fd(self.ssl, self.socket.fileno())
        if tls.SSL_connect(self.ssl) != 1 or tls.SSL_write(self.ssl, hello, len(hello)) != len(hello):
            self.close()
            raise ConnectionError
        ours, theirs, secret = (ctypes.create_string_buffer(n) for n in (32, 32, 48))
        tls.SSL_get_client_random(self.ssl, ours, 32)
        tls.SSL_get_server_random(self.ssl, theirs, 32)
        tls.SSL_SESSION_get_master_key(Pointer(tls.SSL_get_session(self.ssl)), secret, 48)
        keys = expand(secret.raw, b"key expansion", theirs.raw + ours.raw, 40)
        self.salt, self.sequence = keys[32:36], 2  # Finished, and the hello
        self.cipher = Pointer(crypto.EVP_CIPHER_CTX_new())
        crypto.EVP_EncryptInit_ex(self.cipher, Pointer(crypto.EVP_aes_128_gcm()), None, keys[:16], None)

    def record(self, kind, body):
        crypto, n = self.crypto, ctypes.c_int()
        out, tag = ctypes.create_string_buffer(len(body)), ctypes.create_string_buffer(16)
        explicit = struct.pack(">Q", self.sequence)
        beside = explicit + struct.pack(">BHH", kind, VERSION, len(body))
        crypto.EVP_EncryptInit_ex(self.cipher, None, None, None, self.salt + explicit)
        crypto.EVP_EncryptUpdate(self.cipher, None, ctypes.byref(n), beside, len(beside))
        crypto.EVP_EncryptUpdate(self.cipher, out, ctypes.byref(n), body, len(body))
        crypto.EVP_EncryptFinal_ex(self.cipher, tag, ctypes.byref(n))
        crypto.EVP_CIPHER_CTX_ctrl(self.cipher, 0x10, 16, tag)  # EVP_CTRL_AEAD_GET_TAG
        self.sequence += 1
        body = explicit + out.raw + tag.raw
        return struct.pack(">BHH", kind, VERSION, len(body)) + body

    def close(self):
        self.tls.SSL_free(self.ssl)
        self.socket.close()
