"""What answers inside the tests' own Internet: a name server for its names, and an HTTPS site at each address.

Run by `world` in its network namespace: `python -m tests.framework.world_sites NAMESERVER CERTIFICATE NAME=ADDRESS…`;
it says `ready` once everything listens.
"""

import datetime
import http.server
import socket
import ssl
import sys
import threading

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

TTL_S = 60
_LIFE = datetime.timedelta(days=2)


class Authority:
    """Signs certificates that live as long as a test run."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        made = _builder(self._name, self._name, self._key).add_extension(x509.BasicConstraints(True, 0), critical=True)
        self.certificate = made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()

    def issue(self, names: tuple[str, ...]) -> str:
        """A key and a certificate for names, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        others = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        made = _builder(subject, self._name, key).add_extension(others, critical=False)
        certificate = made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        return (key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate).decode()


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LIFE)
        .not_valid_after(now + _LIFE)
    )


def answer(question: bytes, names: dict[str, str]) -> bytes:
    """The name server's answer: an address for the names it has, an empty one for other types, else NXDOMAIN."""
    query = dns.message.from_wire(question)
    asked = query.question[0]
    address = names.get(asked.name.to_text(omit_final_dot=True).lower())
    reply = dns.message.make_response(query, recursion_available=True)
    reply.flags |= dns.flags.AA
    if address is None:
        reply.set_rcode(dns.rcode.NXDOMAIN)
    elif asked.rdtype == dns.rdatatype.A:
        reply.answer.append(dns.rrset.from_text(asked.name, TTL_S, "IN", "A", address))
    return reply.to_wire()


def resolve(server: socket.socket, names: dict[str, str]) -> None:
    while True:
        question, client = server.recvfrom(4096)
        server.sendto(answer(question, names), client)


class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"this is {self.headers.get('host')}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


def main(nameserver: str, certificate: str, told: list[str]) -> None:
    names = dict(pair.split("=") for pair in told)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((nameserver, 53))
    threading.Thread(target=resolve, args=(server, names), daemon=True).start()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    sites = http.server.ThreadingHTTPServer(("0.0.0.0", 443), Site)
    sites.socket = context.wrap_socket(sites.socket, server_side=True, do_handshake_on_connect=False)
    print("ready", flush=True)
    sites.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
