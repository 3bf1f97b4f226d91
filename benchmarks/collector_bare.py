"""The least that an HTTP server of the same kind can do: read a body, answer 204. Prints its address."""

import socket

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


async def answer(request: Request) -> Response:
    """Read all, keep nothing."""
    await request.body()
    return Response(status_code=204)


app = Starlette(routes=[Route("/{path:path}", answer, methods=["PUT"])])
listener = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, lifespan="off")).run([listener])
