"""The published test vectors of algorithms that only other implementations use: RFC 9421 appendices B.2.3 and B.3, and the
RSA vectors of the draft.

`crawler identity verify` refuses these algorithms. The text that a signature covers does not depend on them, so the vectors
check it; OpenSSL checks the signatures.
"""

from __future__ import annotations

from base64 import b64decode

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA512

from crawler.identity.signatures import Message, NotDecided, signature_base, signatures_of
from crawler.identity.web_bot_auth import check_request

MODULUS = """
r4tmm3r20Wd/PbqvP1s2+QEtvpuRaV8Yq40gjUR8y2Rjxa6dpG2GXHbPfvMs8ct+Lh1GH45x28Rw3Ry53mm+oAXjyQ86OnDkZ5N8lYbggD4O
3w6M6pAvLkhk95AndTrifbIFPNU8PPMO7OyrFAHqgDsznjPFmTOtCEcN2Z1FpWgchwuYLPL+Wokqltd11nqqzi+bJ9cvSKADYdUAAN5WUtzd
piy6LbTgSxP7ociU4Tn0g5I6aDZJ7A8Lzo0KSyZYoA485mqcO0GVAdVw9lq4aOT9v6d+nb4bnNkQVklLQ3fVAvJm+xdDOp9LCNCN48V2pnDO
kFV6+U9nV5oyc6XI2w==
"""
"""Of test-key-rsa-pss (B.1.2); the exponent is 65537."""

POINT = """
BKiFWGVSwqz2Rxh4z9ewk1tP/g/S38NBJI6he8QeBYrwMc4nN9LTDOBhfoUeg8Ye9WedFRhnZXZJA12Qp0zZ6F0=
"""
"""Of test-key-ecc-p256 (B.1.3)."""

DIGEST = "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:"
CERTIFICATE = """
MIIBqDCCAU6gAwIBAgIBBzAKBggqhkjOPQQDAjA6MRswGQYDVQQKDBJMZXQncyBBdXRoZW50aWNhdGUxGzAZBgNVBAMMEkxBIEludGVybWVk
aWF0ZSBDQTAeFw0yMDAxMTQyMjU1MzNaFw0yMTAxMjMyMjU1MzNaMA0xCzAJBgNVBAMMAkJDMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
8YnXXfaUgmnMtOXU/IncWalRhebrXmckC8vdgJ1p5Be5F/3YC8OthxM4+k1M6aEAEFcGzkJiNy6J84y7uzo9M6NyMHAwCQYDVR0TBAIwADAf
BgNVHSMEGDAWgBRm3WjLa38lbEYCuiCPct0ZaSED2DAOBgNVHQ8BAf8EBAMCBsAwEwYDVR0lBAwwCgYIKwYBBQUHAwIwHQYDVR0RAQH/BBMw
EYEPYmRjQGV4YW1wbGUuY29tMAoGCCqGSM49BAMCA0gAMEUCIBHda/r1vaL6G3VliL4/Di6YK0Q6bMjeSkC3dFCOOB8TAiEAx/kHSB4urmiZ
0NX5r5XarmPk0wmuydBVoU4hBVZ1yhk=
"""

B_2_3 = """
bbN8oArOxYoyylQQUU6QYwrTuaxLwjAC9fbY2F6SVWvh0yBiMIRGOnMYwZ/5MR6fb0Kh1rIRASVxFkeGt683+qRpRRU5p2voTp768ZrCUb38
K0fUxN0O0iC59DzYx8DFll5GmydPxSmme9v6ULbMFkl+V5B1TP/yPViV7KsLNmvKiLJH1pFkh/aYA2HXXZzNBXmIkoQoLd7YfW91kE9o/CCo
C1xMy7JA1ipwvKvfrs65ldmlu9bpG6A9BmzhuzF8Eim5f8ui9eH8LZH896+QIF61ka39VBrohr9iyMUJpvRX2Zbhl5ZJzSRxpJyoEZAFL2FU
o5fTIztsDZKEgM4cUA==
"""
B_3 = """
xVMHVpawaAC/0SbHrKRs9i8I3eOs5RtTMGCWXm/9nvZzoHsIg6Mce9315T6xoklyy0yzhD9ah4JHRwMLOgmizw==
"""
MEMBER = """
gHzpLNeHaHIO19NaJH9YMW5dcVSi2s0wOMBr6p18vcofS106sfC4KBIS0/szPlBBd1vIcyQ88B6CTEWIhRAiVrb9zfX0mx1aG12CSGWcYkSi
rHeyTxhbuJvXd27ed6skWoy4PjXItq38936ivUQjfdIwXh1aX6HxkAC3vRnEdSNfntkLWeEuIQ5BLIOBGE39fSwg27Qjq6OVWYas/9/aFUr3
HA34MXWYdp+//cvlEKDp3kRoLOw9ro0AOr6srHrTeEtxon2afcws1aZVSlPdd2fZSEIGmw9HAHLDCEkFTERu1gH2k/zIEqgy7CAYXI9E5slo
g0cLg/Vc6+f8gih33g==
"""
LEGACY = """
I1QWNzGXdP1a4dSvOHLCVOOanEYHDk+ZsVxM9MLX/p4ko69ghKwR5EOtAD96g7g4GWP7lmpM/jFAf9q8EFRDTPLjUXySwMv4YPgabv2LQihT
JG2y8a2m6IGltyruwQNiqSJVUuRaG9+b17CGmAMFZh30X6GXLdQJrCARpeTqPwp2DC+a8haDE/VE5EruqzjA5/2mKwvrkzkSqeW5tOVtFwWR
RHIOidquf/8Je6kM9mhgkg4arudLA5SL4wyyYE1jURIgcOl8agrfdJ5Def23DIRtiOLRa8jT9cpTLFAuFHN+mrZA/LH9h0gSIg1cPb+0cMAS
ee5uku1KjWcFer7jWA==
"""

REQUEST = f"""\
POST /foo?param=Value&Pet=dog HTTP/1.1
Host: example.com
Date: Tue, 20 Apr 2021 02:07:55 GMT
Content-Type: application/json
Content-Digest: {DIGEST}
Content-Length: 18
"""

BEHIND_A_PROXY = f"""\
POST /foo?param=Value&Pet=dog HTTP/1.1
Host: service.internal.example
Date: Tue, 20 Apr 2021 02:07:55 GMT
Content-Type: application/json
Content-Length: 18
Client-Cert: :{"".join(CERTIFICATE.split())}:
"""

OF_BOT = """\
GET /path/to/resource HTTP/1.1
Host: example.com
Signature-Agent: """

BY_RSA = 'keyid="oD0HwocPBSfpNy5W3bpJeyFGY_IQ_YpqxSjQ3Yd-CLA";alg="rsa-pss-sha512"'
MEMBER_NONCE = "wcfPQPh7SzkvrIVvhD00vNk9PkxJNY2NVbYl2PVBB4zmUoluSwE7W6bPtF60QA3k8g06FU7PPCD+J58YofY1zg=="
LEGACY_NONCE = "XSHtZVCThSIAksXsH9WBs6AtxtXC0eQGiIcUGSoJstFs8lAWakjhrfwzLhyjtme5iXMZvmFWqDEs6cT3Jf+BbQ=="


def signed(head: str, signature_input: str, value: str) -> Message:
    label = signature_input.partition("=")[0]
    return Message.from_head(
        f"{head}Signature-Input: {signature_input}\nSignature: {label}=:{''.join(value.split())}:\n"
    )


def base_of(message: Message) -> bytes:
    return signature_base(message, signatures_of(message)[0]).encode()


def by_rsa_pss(value: str, base: bytes) -> None:
    """RFC 9421 3.3.1."""
    key = RSAPublicNumbers(65537, int.from_bytes(b64decode(MODULUS))).public_key()
    key.verify(b64decode(value), base, PSS(MGF1(SHA512()), 64), SHA512())


def by_ecdsa(value: str, base: bytes) -> None:
    """RFC 9421 3.3.4."""
    raw = b64decode(value)
    encoded = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    EllipticCurvePublicKey.from_encoded_point(SECP256R1(), b64decode(POINT)).verify(encoded, base, ECDSA(SHA256()))


WITH_MEMBER = signed(
    f'{OF_BOT}agent2="https://signature-agent.test"\n',
    f'sig2=("@authority" "signature-agent";key="agent2");created=1735689600;{BY_RSA};expires=4889289600'
    f';nonce="{MEMBER_NONCE}";tag="web-bot-auth"',
    MEMBER,
)
WITH_STRING = signed(
    f'{OF_BOT}"https://signature-agent.test"\n',
    f'sig2=("@authority" "signature-agent");created=1735689600;{BY_RSA};expires=1735693200'
    f';nonce="{LEGACY_NONCE}";tag="web-bot-auth"',
    LEGACY,
)
B_2_3_INPUT = (
    'sig-b23=("date" "@method" "@path" "@query" "@authority" "content-type" "content-digest" "content-length")'
    ';created=1618884473;keyid="test-key-rsa-pss"'
)
B_3_INPUT = 'ttrp=("@path" "@query" "@method" "@authority" "client-cert");created=1618884473;keyid="test-key-ecc-p256"'
VECTORS = {
    "B.2.3": (by_rsa_pss, B_2_3, signed(REQUEST, B_2_3_INPUT, B_2_3)),
    "B.3": (by_ecdsa, B_3, signed(BEHIND_A_PROXY, B_3_INPUT, B_3)),
    "draft, member": (by_rsa_pss, MEMBER, WITH_MEMBER),
    "draft, legacy": (by_rsa_pss, LEGACY, WITH_STRING),
}


@pytest.mark.parametrize("name", VECTORS)
def test_the_signature_fits_the_text_and_no_other(name: str) -> None:
    verify, value, message = VECTORS[name]
    base = base_of(message)
    verify(value, base)
    with pytest.raises(InvalidSignature):
        verify(value, base + b" ")


def test_a_query_parameter_is_refused_as_unsupported() -> None:
    message = signed(
        REQUEST,
        'sig-b22=("@authority" "content-digest" "@query-param";name="Pet");created=1618884473;keyid="test-key-rsa-pss"'
        ';tag="header-example"',
        B_2_3,
    )
    with pytest.raises(NotDecided, match="'@query-param' in a form that this program does not support"):
        base_of(message)


def test_a_signature_with_rsa_is_refused_by_name() -> None:
    """The key would not help, even if the directory had it."""
    with pytest.raises(NotDecided, match="has the algorithm 'rsa-pss-sha512', and only ed25519 can be checked"):
        check_request(WITH_STRING, lambda _: {}, 1735689601)
