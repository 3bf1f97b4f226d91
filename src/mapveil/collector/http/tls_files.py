"""The certificate chain and the private key of HTTPS, which are read before anything is listened on."""

import re
import ssl
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from mapveil.collector.http.settings import Settings
from mapveil_client.errors import InputError

_CERT: Final = "tls_cert (--tls-cert)"
_KEY: Final = "tls_key (--tls-key)"
_CERTIFICATE_BEGINS: Final = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----")
_KEY_BEGINS: Final = re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----")
_OF_TWO_PAIRS: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")


def check_tls(settings: Settings) -> x509.Certificate | None:
    """Load the pair as the server will; the certificate of this server, None where the settings name no pair.

    Raises
    ------
    InputError
        A file cannot be read, lacks its part, or the key is not that of the certificate.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    cert, key = f"{_CERT} {settings.tls_cert}", f"{_KEY} {settings.tls_key}"
    chain, secret = _content(cert, settings.tls_cert), _content(key, settings.tls_key)
    if not _CERTIFICATE_BEGINS.search(chain):
        if _KEY_BEGINS.search(chain) and _CERTIFICATE_BEGINS.search(secret):
            raise InputError(f"{cert} holds a private key and {key} a certificate; are the two swapped?")
        raise InputError(f"{cert}: holds no PEM certificate")
    if not _KEY_BEGINS.search(secret):
        raise InputError(f"{key}: holds no PEM private key")
    try:
        certificate = x509.load_pem_x509_certificate(chain)
    except ValueError:
        raise InputError(f"{cert}: holds no PEM certificate that can be read") from None
    try:
        load_pem_private_key(secret, None)
    except TypeError:  # raised where a password is needed
        raise InputError(f"{key}: the private key has a password; expected one without") from None
    except Exception:  # of several kinds, none of which may be quoted: the text could hold a part of the key
        raise InputError(f"{key}: holds no PEM private key that can be read") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except ssl.SSLError as error:
        if error.reason in _OF_TWO_PAIRS:
            raise InputError(f"{key}: is not the key of the certificate in {settings.tls_cert}") from None
        raise InputError(f"{cert}: cannot be served with ({error.reason or type(error).__name__})") from None
    return certificate


def _content(shown: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f"{shown}: no such file") from None
    except OSError as error:
        raise InputError(f"{shown}: cannot be read ({error.strerror})") from None
