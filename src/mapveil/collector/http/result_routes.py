"""The routes of finished maps: the map, its guarantee, files, tiles, and private retrieval of its cells."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Path, Query, Request, Response

from mapveil.collector.http.exchange import CBOR, require_media
from mapveil.collector.http.finished import EXPORTS, Compressed, FinishedMap, FinishedMaps
from mapveil.collector.http.schemas import GuaranteeBody
from mapveil.collector.http.service import CollectionId, Service, refusals
from mapveil.collector.refusals import NotFound, Refusal
from mapveil.collector.store.principals import Operator
from mapveil_client.errors import MissingExtra

_MAP = "/v1/collections/{id}/map"
_RETRIEVAL = "/v1/collections/{id}/retrieval"
_BINARY: dict[str, Any] = {"type": "string", "format": "binary"}
_CBOR = CBOR.decode()

Layer = Annotated[
    Literal["density", "uncertainty"], Query(description="The density, or half the width of its interval")
]
Theme = Annotated[Literal["light", "dark"], Query(description="Whether density 0 is white or black")]
Scale = Annotated[
    float | None, Query(gt=0, allow_inf_nan=False, description="Another scale: give top and knee")
]
Format = Literal["geotiff", "geoparquet", "geojson", "png", "html"]
Level = Annotated[int, Path(ge=0, le=22)]
Tile = Annotated[int, Path(ge=0, le=(1 << 22) - 1)]
Part = Annotated[int, Path(ge=0, le=1 << 20)]


def add_result_routes(app: FastAPI, service: Service) -> None:
    """Add the routes of finished maps."""
    maps = FinishedMaps(service.engine.map)
    _add_map(app, service, maps)
    _add_retrieval(app, service, maps)


def _body(about: str, *media: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    """Options of a route whose success is no model of ours, for the OpenAPI document."""
    success = {"description": about, "content": {kind: {"schema": schema or _BINARY} for kind in media}}
    return {"response_class": Response, "responses": {200: success, **refusals(409)}}


def _add_map(app: FastAPI, service: Service, maps: FinishedMaps) -> None:
    viewer, get = service.operator("viewer"), partial(app.get, tags=["results"])
    record: dict[str, Any] = {"type": "object"}
    json_body = partial(_body, schema=record)
    kinds = [media.partition(";")[0] for _, media in EXPORTS.values()]

    @get(_MAP, summary="The map: guarantee, bounds, legend, outline",
         **json_body("Everything but the cells", "application/json"))  # fmt: skip
    def show(id: CollectionId, who: Operator = viewer) -> Response:
        title = service.engine.collection(id)["title"]
        body = {"id": id, "title": title, **maps.of(id).tiles.record()}
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return Response(text.encode(), media_type="application/json")

    @get(f"{_MAP}/cells", summary="Every cell: value, density, 95 % interval",
         **json_body("Arrays over cells", "application/json"))  # fmt: skip
    def cells(id: CollectionId, request: Request, who: Operator = viewer) -> Response:
        return _compressed(request, maps.of(id).cells, "application/json")

    @get(f"{_MAP}/cells.geojson", summary="Every cell as a GeoJSON feature",
         **json_body("A feature collection", "application/geo+json"))  # fmt: skip
    def features(id: CollectionId, request: Request, who: Operator = viewer) -> Response:
        return _compressed(request, maps.of(id).features, "application/geo+json")

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
        theme: Theme = "light",
        top: Scale = None,
        knee: Scale = None,
    ) -> Response:
        found = maps.of(id)
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
        found = maps.of(id)
        try:
            with service.drawing:
                body = found.features.plain if form == "geojson" else found.export(form)
        except MissingExtra as error:
            raise Refusal(str(error), status=503) from None
        suffix, media = EXPORTS[form]
        name = f'attachment; filename="mapveil-{id[:8]}{suffix}"'
        return Response(body, media_type=media, headers={"Content-Disposition": name})


def _add_retrieval(app: FastAPI, service: Service, maps: FinishedMaps) -> None:
    security: dict[str, Any] = {"security": [{"operator": ["viewer"]}, {"device": []}]}
    get = partial(app.get, tags=["retrieval"], openapi_extra=security)
    run = service.run

    def built(id: str) -> FinishedMap:
        found = maps.of(id)
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
        from mapveil.retrieval.messages import OutdatedHint

        message = await request.body()
        await service.access.anybody_known(request.scope, message)
        require_media(request.scope, CBOR)
        found = await run(built, id)
        try:
            answer = await run(found.retrieval.answer, message)
        except OutdatedHint as outdated:
            answer = outdated.reply
        return Response(answer, media_type=_CBOR)


def _compressed(request: Request, body: Compressed, media: str) -> Response:
    """A large body, compressed for whoever accepts gzip."""
    headers = {"Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(body.zipped, media_type=media, headers={**headers, "Content-Encoding": "gzip"})
    return Response(body.plain, media_type=media, headers=headers)
