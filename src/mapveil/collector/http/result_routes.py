"""The routes of finished maps: the scene, its guarantee, files, and private retrieval of its cells.

What is costly to make of a map is made once and kept for a while.
"""

import asyncio
import gzip
import itertools
import json
import time
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI, Path, Request, Response
from fastapi.responses import StreamingResponse

from mapveil.collector.http.exchange import CBOR, JSON, require_media
from mapveil.collector.http.schemas import GuaranteeBody
from mapveil.collector.http.service import CollectionId, Service, refusals
from mapveil.collector.http.work_budget import WorkBudget
from mapveil.collector.recent import Recent
from mapveil.collector.refusals import NotFound, StoreUnavailable
from mapveil.collector.rounds.export_process import SUFFIXES
from mapveil.collector.store.principals import Operator
from mapveil.maps.density_map import DensityMap
from mapveil.pictures.scene_record import scene_record
from mapveil.retrieval.map_records import map_database
from mapveil.retrieval.pir_server import Server

_MAP = "/v1/collections/{id}/map"
_RETRIEVAL = "/v1/collections/{id}/retrieval"
_BINARY: dict[str, Any] = {"type": "string", "format": "binary"}
_CBOR = CBOR.decode()
_JSON = JSON.decode()

_LOOK_SECONDS: Final = 0.1
_EXPORT_SECONDS: Final = 600.0  # that a request waits for a file to be made
_HINT_PART_ROWS: Final = 256

MEDIA: Final = {
    "geotiff": "image/tiff",
    "geoparquet": "application/vnd.apache.parquet",
    "geojson": "application/geo+json",
    "png": "image/png",
    "html": "text/html; charset=utf-8",
}
"""Media type of each format that a map can be downloaded in, by its name in the address."""

Format = Literal["geotiff", "geoparquet", "geojson", "png", "html"]
Part = Annotated[int, Path(ge=0, le=1 << 20)]


class FinishedMap:
    """One map and what was made of it. Every method may be called from any thread."""

    def __init__(self, heat: DensityMap) -> None:
        self.heat = heat

    @cached_property
    def scene(self) -> bytes:
        """The record of its scene as JSON, compressed."""
        text = json.dumps(scene_record(self.heat), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return gzip.compress(text.encode(), 5, mtime=0)

    @cached_property
    def retrieval(self) -> Server:
        """Server of private queries about the map; the hint takes about 1000 operations for each byte."""
        measured = self.heat.interval() is not None
        return Server(map_database(self.heat, ("users", "lower", "upper") if measured else ("users",)))

    def hint_part(self, part: int) -> bytes:
        """Some rows of the retrieval's hint."""
        if not 0 <= part < self.hint_parts:
            raise NotFound(f"the hint has parts 0 to {self.hint_parts - 1}")
        return next(itertools.islice(self.retrieval.hint_messages(), part, None))

    @property
    def hint_parts(self) -> int:
        """Number of parts in which the hint is sent."""
        rows: int = self.retrieval.hint.shape[0]
        return -(-rows // _HINT_PART_ROWS)

    @property
    def nbytes(self) -> int:
        """Bytes of the map and of what was made of it so far."""
        size = self.heat.values.nbytes + sum(each.groups.nbytes for each in self.heat.measurements)
        made = vars(self)  # what was made stands beside what it was made of
        if "retrieval" in made:
            size += self.retrieval.hint.nbytes + self.retrieval.database.matrix.nbytes
        return size + len(made.get("scene", b""))


_Maps = Callable[..., Awaitable[FinishedMap]]


def add_result_routes(app: FastAPI, service: Service) -> None:
    """Add the routes of finished maps."""
    maps: Recent[str, FinishedMap] = Recent(service.settings.map_bytes, lambda found: found.nbytes)
    lock = asyncio.Lock()
    budget = WorkBudget(service.settings.work_at_once, service.settings.work_hour)

    async def map_of(collection: str, make: str, who: Operator | None = None) -> FinishedMap:
        """A map with one of the things that are made of it: once, however many ask for it first, and in one thread.

        An operator's budget of work is charged for what must be made.
        """
        found = maps.get(collection)
        if found is not None and make in vars(found):
            return found
        if who is None:
            async with lock:
                return await service.run(made, collection, make)
        with budget.waiting(who):
            async with lock:
                return await service.run(made, collection, make, budget.charge_of(who))

    def made(collection: str, make: str, charge: Callable[[], None] = lambda: None) -> FinishedMap:
        found = maps.get(collection) or FinishedMap(service.engine.map(collection))
        if make not in vars(found):
            charge()
            getattr(found, make)
            maps.put(collection, found)
        return found

    _add_map(app, service, map_of, budget)
    _add_retrieval(app, service, map_of)


def _body(about: str, *media: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    """Options of a route whose success is no model of ours, for the OpenAPI document."""
    success = {"description": about, "content": {kind: {"schema": schema or _BINARY} for kind in media}}
    return {"response_class": Response, "responses": {200: success, **refusals(409)}}


def _add_map(app: FastAPI, service: Service, map_of: _Maps, budget: WorkBudget) -> None:
    viewer, get = service.operator("viewer"), partial(app.get, tags=["results"])
    kinds = [media.partition(";")[0] for media in MEDIA.values()]
    record = _body("Guarantee, notes, and every cell; arrays are packed", _JSON, schema={"type": "object"})

    @get(_MAP, summary="The scene of the map: what the viewer draws and says", **record)
    async def scene(id: CollectionId, request: Request, who: Operator = viewer) -> Response:
        zipped = (await map_of(id, "scene", who)).scene
        headers = {"Vary": "Accept-Encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            plain = await service.run(gzip.decompress, zipped)
            return Response(plain, media_type=_JSON, headers=headers)
        return Response(zipped, media_type=_JSON, headers={**headers, "Content-Encoding": "gzip"})

    @get("/v1/collections/{id}/guarantee", summary="The guarantee, in words and as a record",
         responses=refusals(409))  # fmt: skip
    def guarantee(id: CollectionId, who: Operator = viewer) -> GuaranteeBody:
        found = service.engine.guarantee(id)
        return GuaranteeBody(in_words=found.in_words(), guarantee=found.to_dict())

    @get(_MAP + "/exports/{form}", summary="The map as a file", **_body("The file", *kinds))
    async def export(id: CollectionId, form: Format, who: Operator = viewer) -> Response:
        look = partial(service.run, service.engine.export, id, form, budget.charge_of(who))
        last = time.monotonic() + _EXPORT_SECONDS
        with budget.waiting(who):
            # No thread waits for a worker, so twelve files in the making keep nobody else from an answer.
            while (size := await look()) is None:
                if time.monotonic() > last:
                    raise StoreUnavailable("the file is still being made; ask again")
                await asyncio.sleep(_LOOK_SECONDS)
        name = f'attachment; filename="mapveil-{id[:8]}{SUFFIXES[form]}"'
        headers = {"Content-Disposition": name, "Content-Length": str(size)}
        return StreamingResponse(service.engine.exported(id, form), media_type=MEDIA[form], headers=headers)


def _add_retrieval(app: FastAPI, service: Service, map_of: _Maps) -> None:
    security: dict[str, Any] = {"security": [{"operator": ["viewer"]}, {"device": []}]}
    get = partial(app.get, tags=["retrieval"], openapi_extra=security)
    run = service.run

    @get(f"{_RETRIEVAL}/offer", summary="The offer that a client of private retrieval begins with",
         **_body("An offer of mapveil.retrieval", _CBOR))  # fmt: skip
    async def offer(id: CollectionId, request: Request) -> Response:
        who = await service.access.anybody_known(request.scope)
        found = await map_of(id, "retrieval", who)
        parts = {"Mapveil-Parts": str(found.hint_parts)}
        return Response(found.retrieval.offer(), media_type=_CBOR, headers=parts)

    @get(_RETRIEVAL + "/hint/{part}", summary="A part of the hint, to be fetched once",
         **_body("A hint of mapveil.retrieval", _CBOR))  # fmt: skip
    async def hint(id: CollectionId, part: Part, request: Request) -> Response:
        who = await service.access.anybody_known(request.scope)
        found = await map_of(id, "retrieval", who)
        return Response(await run(found.hint_part, part), media_type=_CBOR)

    body = {"requestBody": {"required": True, "content": {_CBOR: {"schema": _BINARY}}}}
    answers = _body("An answer of mapveil.retrieval", _CBOR)
    answers["responses"] |= refusals(415)

    @app.post(f"{_RETRIEVAL}/query", tags=["retrieval"], summary="Query a cell without revealing which",
              openapi_extra={**security, **body}, **answers)  # fmt: skip
    async def query(id: CollectionId, request: Request) -> Response:
        from mapveil.retrieval.pir_messages import OutdatedHint

        message = await request.body()
        who = await service.access.anybody_known(request.scope, message)
        require_media(request.scope, CBOR)
        found = await map_of(id, "retrieval", who)
        try:
            answer = await run(found.retrieval.answer, message)
        except OutdatedHint as outdated:
            answer = outdated.reply
        return Response(answer, media_type=_CBOR)
