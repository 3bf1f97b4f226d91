"""The routes of finished maps: the map, its guarantee, files, tiles, and private retrieval of its cells.

What is costly to make of a map is made once and kept for a while.
"""

import gzip
import itertools
import json
import tempfile
import threading
from collections.abc import Callable, Hashable
from functools import cached_property, partial
from pathlib import Path as FilePath
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI, Path, Query, Request, Response

from mapveil.collector.http.exchange import CBOR, require_media
from mapveil.collector.http.schemas import GuaranteeBody
from mapveil.collector.http.service import CollectionId, Service, refusals
from mapveil.collector.http.tiles import MapTiles, Shown, Theme, cells_record
from mapveil.collector.recent import Recent
from mapveil.collector.refusals import NotFound, Refusal
from mapveil.collector.store.principals import Operator
from mapveil.maps.density_map import DensityMap
from mapveil.retrieval.map_records import map_database
from mapveil.retrieval.pir_server import Server
from mapveil_client.errors import MissingExtra

_MAP = "/v1/collections/{id}/map"
_RETRIEVAL = "/v1/collections/{id}/retrieval"
_BINARY: dict[str, Any] = {"type": "string", "format": "binary"}
_CBOR = CBOR.decode()

_MAPS: Final = 8
_PICTURES: Final = 4096  # tiles of one map
_HINT_PART_ROWS: Final = 256

EXPORTS: Final = {
    "geotiff": (".tif", "image/tiff"),
    "geoparquet": (".parquet", "application/vnd.apache.parquet"),
    "geojson": (".geojson", "application/geo+json"),
    "png": (".png", "image/png"),
    "html": (".html", "text/html; charset=utf-8"),
}
"""Suffix and media type of each format that a map can be downloaded in, by its name in the address."""

Layer = Annotated[Shown, Query(description="The density, or half the width of its interval")]
Mode = Annotated[Theme, Query(description="Whether density 0 is white or black")]
Scale = Annotated[
    float | None, Query(gt=0, allow_inf_nan=False, description="Another scale: give top and knee")
]
Format = Literal["geotiff", "geoparquet", "geojson", "png", "html"]
Level = Annotated[int, Path(ge=0, le=22)]
Tile = Annotated[int, Path(ge=0, le=(1 << 22) - 1)]
Part = Annotated[int, Path(ge=0, le=1 << 20)]


class FinishedMap:
    """One map and what was made of it. Every method may be called from any thread."""

    def __init__(self, heat: DensityMap) -> None:
        self.heat = heat
        self.pictures: Recent[Hashable, bytes] = Recent(_PICTURES)

    @cached_property
    def tiles(self) -> MapTiles:
        """Its pictures."""
        return MapTiles(self.heat)

    @cached_property
    def cells(self) -> bytes:
        """Its cells as JSON, compressed."""
        text = json.dumps(cells_record(self.heat), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return _zipped(text.encode())

    @cached_property
    def features(self) -> bytes:
        """Its cells as GeoJSON, compressed."""
        return _zipped(self.export("geojson"))

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
    record: dict[str, Any] = {"type": "object"}
    json_body = partial(_body, schema=record)
    kinds = [media.partition(";")[0] for _, media in EXPORTS.values()]

    @get(_MAP, summary="The map: guarantee, bounds, legend, outline",
         **json_body("Everything but the cells", "application/json"))  # fmt: skip
    def show(id: CollectionId, who: Operator = viewer) -> Response:
        title = service.engine.collection(id)["title"]
        body = {"id": id, "title": title, **map_of(id).tiles.record()}
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return Response(text.encode(), media_type="application/json")

    @get(f"{_MAP}/cells", summary="Every cell: value, density, 95 % interval",
         **json_body("Arrays over cells", "application/json"))  # fmt: skip
    def cells(id: CollectionId, request: Request, who: Operator = viewer) -> Response:
        return _compressed(request, map_of(id).cells, "application/json")

    @get(f"{_MAP}/cells.geojson", summary="Every cell as a GeoJSON feature",
         **json_body("A feature collection", "application/geo+json"))  # fmt: skip
    def features(id: CollectionId, request: Request, who: Operator = viewer) -> Response:
        return _compressed(request, map_of(id).features, "application/geo+json")

    @get("/v1/collections/{id}/guarantee", summary="The guarantee, in words and as a record",
         responses=refusals(409))  # fmt: skip
    def guarantee(id: CollectionId, who: Operator = viewer) -> GuaranteeBody:
        found = service.engine.guarantee(id)
        return GuaranteeBody(in_words=found.in_words(), guarantee=found.to_dict())

    @get(_MAP + "/tiles/{z}/{x}/{y}.png", summary="A web-mercator tile of 256 pixels",
         **_body("The tile", "image/png"))  # fmt: skip
    def tile(
        id: CollectionId,
        z: Level,
        x: Tile,
        y: Tile,
        who: Operator = viewer,
        layer: Layer = "density",
        theme: Mode = "light",
        top: Scale = None,
        knee: Scale = None,
    ) -> Response:
        found = map_of(id)
        if max(x, y) >= 1 << z:
            raise NotFound(f"level {z} has columns and rows 0 to {(1 << z) - 1}")
        if found.tiles.legend(layer) is None:
            raise NotFound("the map has no such layer: it carries no bounds")
        key = (z, x, y, layer, theme, top, knee)
        made = found.pictures.get(key)
        if made is None:
            made = found.pictures.put(key, found.tiles.png(z, x, y, layer, theme, top=top, knee=knee))
        return Response(made, media_type="image/png")

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


def _zipped(body: bytes) -> bytes:
    return gzip.compress(body, 5, mtime=0)


def _compressed(request: Request, zipped: bytes, media: str) -> Response:
    """A large body, compressed for whoever accepts gzip."""
    headers = {"Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(zipped, media_type=media, headers={**headers, "Content-Encoding": "gzip"})
    return Response(gzip.decompress(zipped), media_type=media, headers=headers)
