"""The headers of every response: what a browser may do with it."""

from __future__ import annotations

from typing import Final

# The pages load nothing but what this service serves, and no script that stands in a page.
PAGE_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    b"worker-src 'self' blob:; manifest-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
"""The content security policy of the console and the browser device."""

HEADERS: Final = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(self)"),
    (b"cache-control", b"no-store"),
)
"""What a response carries unless it says otherwise."""

BRIEF: Final = ((b"cache-control", b"no-store"),)
"""The same of a response without a body."""

STRICT_TRANSPORT: Final = (b"strict-transport-security", b"max-age=31536000")
"""Beside them, over TLS."""
