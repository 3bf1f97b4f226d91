"""The routes of finished maps: the scene, its guarantee, files, and private retrieval of its cells.

What is costly to make of a map is made once and kept for a while.
"""

import gzip
import itertools
import json
import tempfile
import threading
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path as FilePath
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI, Path, Request, Response

from mapveil.collector.http.exchange import CBOR, JSON, require_media
from mapveil.collector.http.schemas import GuaranteeBody
from mapveil.collector.http.service import CollectionId, Service, refusals
from mapveil.collector.recent import Recent
from mapveil.collector.refusals import NotFound, Refusal
from mapveil.collector.store.principals import Operator
from mapveil.maps.density_map import DensityMap
from mapveil.pictures.scene_record import scene_record
from mapveil.retrieval.map_records import map_database
from mapveil.retrieval.pir_server import Server
from mapveil_client.errors import MissingExtra

_MAP = "/v1/collections/{id}/map"
_RETRIEVAL = "/v1/collections/{id}/retrieval"
_BINARY: dict[str, Any] = {"type": "string", "format": "binary"}
_CBOR = CBOR.decode()
_JSON = JSON.decode()

_MAPS: Final = 8
_HINT_PART_ROWS: Final = 256

EXPORTS: Final = {
    "geotiff": (".tif", "image/tiff"),
    "geoparquet": (".parquet", "application/vnd.apache.parquet"),
    "geojson": (".geojson", "application/geo+json"),
    "png": (".png", "image/png"),
    "html": (".html", "text/html; charset=utf-8"),
}
"""Suffix and media type of each format that a map can be downloaded in, by its name in the address."""

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

    def export(self, name: str) -> bytes:
        """The map as a file of one of :data:`EXPORTS`."""
        with tempfile.TemporaryDirectory(prefix="mapveil-export-") as folder:
            path = FilePath(folder) / ("map" + EXPORTS[name][0])
            self.heat.save(path)
            return path.read_bytes()


def add_result_routes(app: FastAPI, service: Service) -> None:
    """Add the routes of finished maps."""
    maps: Recent[str, FinishedMap] = Recent(_MAPS)
    lock = threading.Lock()  # a map is read once, however many ask for it first

    def map_of(collection: str) -> FinishedMap:
        with lock:
            return maps.get(collection) or maps.put(collection, FinishedMap(service.engine.map(collection)))

    _add_map(app, service, map_of)
    _add_retrieval(app, service, map_of)


def _body(about: str, *media: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    """Options of a route whose success is no model of ours, for the OpenAPI document."""
    success = {"description": about, "content": {kind: {"schema": schema or _BINARY} for kind in media}}
    return {"response_class": Response, "responses": {200: success, **refusals(409)}}


def _add_map(app: FastAPI, service: Service, map_of: Callable[[str], FinishedMap]) -> None:
    viewer, get = service.operator("viewer"), partial(app.get, tags=["results"])
    kinds = [media.partition(";")[0] for _, media in EXPORTS.values()]
    record = _body("Guarantee, notes, and every cell; arrays are packed", _JSON, schema={"type": "object"})

    @get(_MAP, summary="The scene of the map: what the viewer draws and says", **record)
    def scene(id: CollectionId, request: Request, who: Operator = viewer) -> Response:
        found = map_of(id)
        with service.drawing:  # it is made once, however many ask for it first
            zipped = found.scene
        headers = {"Vary": "Accept-Encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(gzip.decompress(zipped), media_type=_JSON, headers=headers)
        return Response(zipped, media_type=_JSON, headers={**headers, "Content-Encoding": "gzip"})

    @get("/v1/collections/{id}/guarantee", summary="The guarantee, in words and as a record",
         responses=refusals(409))  # fmt: skip
    def guarantee(id: CollectionId, who: Operator = viewer) -> GuaranteeBody:
        found = service.engine.guarantee(id)
        return GuaranteeBody(in_words=found.in_words(), guarantee=found.to_dict())

    @get(_MAP + "/exports/{form}", summary="The map as a file", **_body("The file", *kinds))
    def export(id: CollectionId, form: Format, who: Operator = viewer) -> Response:
        found = map_of(id)
        try:
            with service.drawing:
                body = found.export(form)
        except MissingExtra as error:
            raise Refusal(str(error), status=503) from None
        suffix, media = EXPORTS[form]
        name = f'attachment; filename="mapveil-{id[:8]}{suffix}"'
        return Response(body, media_type=media, headers={"Content-Disposition": name})


def _add_retrieval(app: FastAPI, service: Service, map_of: Callable[[str], FinishedMap]) -> None:
    security: dict[str, Any] = {"security": [{"operator": ["viewer"]}, {"device": []}]}
    get = partial(app.get, tags=["retrieval"], openapi_extra=security)
    run = service.run

    def built(id: str) -> FinishedMap:
        found = map_of(id)
        with service.drawing:  # a hint is computed once, however many ask for it first
            _ = found.retrieval
        return found

    @get(f"{_RETRIEVAL}/offer", summary="The offer that a client of private retrieval begins with",
         **_body("An offer of mapveil.retrieval", _CBOR))  # fmt: skip
    async def offer(id: CollectionId, request: Request) -> Response:
        await service.access.anybody_known(request.scope)
        found = await run(built, id)
        parts = {"Mapveil-Parts": str(found.hint_parts)}
        return Response(found.retrieval.offer(), media_type=_CBOR, headers=parts)

    @get(_RETRIEVAL + "/hint/{part}", summary="A part of the hint, to be fetched once",
         **_body("A hint of mapveil.retrieval", _CBOR))  # fmt: skip
    async def hint(id: CollectionId, part: Part, request: Request) -> Response:
        await service.access.anybody_known(request.scope)
        found = await run(built, id)
        return Response(await run(found.hint_part, part), media_type=_CBOR)

    body = {"requestBody": {"required": True, "content": {_CBOR: {"schema": _BINARY}}}}
    answers = _body("An answer of mapveil.retrieval", _CBOR)
    answers["responses"] |= refusals(415)

    @app.post(f"{_RETRIEVAL}/query", tags=["retrieval"], summary="Query a cell without revealing which",
              openapi_extra={**security, **body}, **answers)  # fmt: skip
    async def query(id: CollectionId, request: Request) -> Response:
        from mapveil.retrieval.pir_messages import OutdatedHint

        message = await request.body()
        await service.access.anybody_known(request.scope, message)
        require_media(request.scope, CBOR)
        found = await run(built, id)
        try:
            answer = await run(found.retrieval.answer, message)
        except OutdatedHint as outdated:
            answer = outdated.reply
        return Response(answer, media_type=_CBOR)
