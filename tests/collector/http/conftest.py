"""A live service in this process, over a real socket; operators and phones that talk to it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from mapveil.collector.http import signature_checks
from mapveil.collector.http.asgi import create_app
from mapveil.collector.http.serving import configuration
from mapveil.collector.http.settings import Settings
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.store.database import Store
from mapveil.collector.store.principals import Accounts
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.keys import Identity, authorization, enrolment_statement
from tests.authority import AUTHORITY

REGION = [-74.03, 40.69, -73.90, 40.83]
UNLIMITED = {"enrol_minute": 0, "enrol_day": 0, "address_rate": 0, "device_rate": 0, "failure_rate": 0}


@contextlib.contextmanager
def serving(app: Any, settings: Settings) -> Iterator[str]:
    """Run an application as ``mapveil serve`` does, in a thread; yields its address."""
    import uvicorn

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(configuration(settings, app))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            deadline = time.monotonic() + 600
            while not server.started:
                assert thread.is_alive()
                assert time.monotonic() < deadline
                time.sleep(0.005)
            yield f"{settings.scheme}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(300)
            assert not thread.is_alive()


class Phone:
    """A device that signs what it asks."""

    def __init__(self, client: httpx.Client, seed: int) -> None:
        self.client = client
        self.identity = Identity.draw(Randomness(seed))
        self.number = 0

    def enrol(self, token: str) -> httpx.Response:
        public = self.identity.public
        body = {
            "token": token,
            "public_key": public.hex(),
            "signature": self.identity.sign(enrolment_statement(token, public)).hex(),
        }
        answer = self.client.post("/v1/devices", json=body)
        if answer.is_success:
            self.number = answer.json()["device"]
        return answer

    def ask(
        self, method: str, path: str, body: bytes = b"", signed: dict[str, Any] | None = None
    ) -> httpx.Response:
        """Send a signed request; ``signed`` says what is signed instead of what is sent."""
        signed = {"device": self.number, "method": method, "path": path, "body": body, **(signed or {})}
        headers = {"Authorization": authorization(self.identity, **signed)}
        if body:
            headers["Content-Type"] = "application/cbor"
        return self.client.request(method, path, content=body or None, headers=headers)


class Api(NamedTuple):
    """The service, and whoever a test needs."""

    address: str
    client: httpx.Client
    engine: Engine
    store: Store
    accounts: Accounts
    clock: Any
    tokens: dict[str, str]  # by role

    def ask(self, method: str, path: str, role: str | None = "admin", **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}
        return self.client.request(method, path, headers=headers | options.pop("headers", {}), **options)

    def draft(self, **changed: Any) -> str:
        spec = {
            "title": "a test",
            "trust": "local",
            "epsilon": "2",
            "region": REGION,
            "tiling": "quadtree:3",
            "devices": 20,
            "minimum": 3,
            "accept_custom_policy": True,
            **changed,
        }
        answer = self.ask("POST", "/v1/collections", json=spec)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def opened(self, **changed: Any) -> str:
        collection = self.draft(**changed)
        answer = self.ask("POST", f"/v1/collections/{collection}/open")
        assert answer.status_code == 200, answer.text
        return collection

    def enrolment(self, uses: int = 100) -> str:
        return self.ask("POST", "/v1/enrolment-tokens", json={"name": "tests", "uses": uses}).json()["token"]

    def phones(self, count: int, seed: int = 1) -> list[Phone]:
        token = self.enrolment(count)
        made = [Phone(self.client, 1000 * seed + number) for number in range(count)]
        for phone in made:
            assert phone.enrol(token).status_code == 201
        return made

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.engine.tick()


@pytest.fixture
def api_with(sqlite_store: Store, clock: Any) -> Iterator[Callable[..., Api]]:
    """Start a service with settings of the test's own."""
    with contextlib.ExitStack() as stack:

        def start(store: Store | None = None, authority: Any = AUTHORITY, **limits: Any) -> Api:
            kept = sqlite_store if store is None else store
            settings = Settings(**{**UNLIMITED, **limits})
            accounts, engine = Accounts(kept), Engine(kept, clock, authority=authority)
            app = create_app(engine, kept, settings, conduct=False)
            address = stack.enter_context(serving(app, settings))
            client = stack.enter_context(httpx.Client(base_url=address, timeout=300))
            lasting = timedelta(days=30)
            tokens = {
                role: accounts.create_operator(role, role, lasting, "command line").token
                for role in ("viewer", "operator", "admin")
            }
            return Api(address, client, engine, kept, accounts, clock, tokens)

        yield start


@pytest.fixture
def api(api_with: Callable[..., Api]) -> Api:
    """A service without rate limits."""
    return api_with()


@pytest.fixture(scope="session")
def live() -> Callable[[Any, Settings], contextlib.AbstractContextManager[str]]:
    """Run any application as ``mapveil serve`` runs its own."""
    return serving


@pytest.fixture(scope="session")
def make_certificate() -> Callable[[Path], tuple[Path, Path]]:
    """Make a certificate for this machine and its key, in a folder."""

    def make(folder: Path) -> tuple[Path, Path]:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        now = datetime.now(UTC)
        here = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(here, critical=False)
            .sign(key, hashes.SHA256())
        )
        plain = serialization.NoEncryption()
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        chain, secret = folder / "chain.pem", folder / "key.pem"
        chain.write_bytes(made.public_bytes(pem))
        secret.write_bytes(key.private_bytes(pem, pkcs8, plain))
        return chain, secret

    return make


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Statements whose signature this process checks, as they come."""
    statements: list[bytes] = []
    good = signature_checks._good

    def counted(public: bytes, signature: bytes, statement: bytes) -> bool:
        statements.append(statement)
        return good(public, signature, statement)

    monkeypatch.setattr(signature_checks, "_good", counted)
    return statements
