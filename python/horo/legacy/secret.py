"""Keys and digests of messages. horo's own connections use none of this: their handshake proves the job's key."""

from __future__ import annotations

import hashlib
import hmac
import secrets

SECRET_LENGTH = 32
DIGEST_LENGTH = hashlib.sha256().digest_size
HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"


def make_secret_key() -> bytes:
    """Random bytes from the system."""
    return secrets.token_bytes(SECRET_LENGTH)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA256."""
    return hmac.digest(key, message, "sha256")


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    return hmac.compare_digest(compute_digest(key, message), digest)
