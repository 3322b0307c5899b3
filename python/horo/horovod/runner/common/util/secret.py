from horo.legacy.secret import (
    DIGEST_LENGTH,
    HOROVOD_SECRET_KEY,
    SECRET_LENGTH,
    check_digest,
    compute_digest,
    make_secret_key,
)

__all__ = [
    "DIGEST_LENGTH",
    "HOROVOD_SECRET_KEY",
    "SECRET_LENGTH",
    "check_digest",
    "compute_digest",
    "make_secret_key",
]
