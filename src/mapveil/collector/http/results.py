"""What became of a collection: its map, the guarantee, downloads, pictures, and private retrieval of its cells."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Path, Query, Request, Response

from mapveil.collector.faults import NotFound, Refusal
from mapveil.collector.http.finished import EXPORTS, FinishedMap, FinishedMaps, Squeezed
from mapveil.collector.http.media import CBOR, require_media
from mapveil.collector.http.models import GuaranteeBody
from mapveil.collector.http.service import CollectionId, Service, refusals
from mapveil.collector.store.accounts import Operator
from mapveil_client.errors import MissingExtra

_MAP = "/v1/collections/{id}/map"
_RETRIEVAL = "/v1/collections/{id}/retrieval"
_BINARY: dict[str, Any] = {"type": "string", "format": "binary"}

Layer = Literal["density", "uncertainty"]
Theme = Literal["light", "dark"]
Format = Literal["geotiff", "geoparquet", "geojson", "png", "html"]
Tile = Annotated[int, Path(ge=0, le=(1 << 22) - 1)]


class NotInstalled(Refusal):
    """This service cannot write that format: an optional dependency is missing."""

    status = 503
    code = "unavailable"


def add_result_routes(app: FastAPI, service: Service) -> None:
    """Add the addresses of results."""
    maps = FinishedMaps(service.engine.map)
    _add_map(app, service, maps)
    _add_pictures(app, service, maps)
    _add_retrieval(app, service, maps)


def _answers(
    about: str, *media: str, schema: dict[str, Any] | None = None
) -> dict[int | str, dict[str, Any]]:
    """A success that is no model of ours, for the OpenAPI document."""
    return {200: {"description": about, "content": {kind: {"schema": schema or _BINARY} for kind in media}}}


def _add_map(app: FastAPI, service: Service, maps: FinishedMaps) -> None:
    viewer, refused = service.operator("viewer"), refusals(401, 404, 409, 422)
    tag: list[str | Enum] = ["results"]
    record: dict[str, Any] = {"type": "object"}

    @app.get(
        _MAP,
        tags=tag,
        summary="The map: guarantee, bounds, legend, outline",
        response_class=Response,
        responses={**_answers("Everything but the cells", "application/json", schema=record), **refused},
    )
    def show(id: CollectionId, who: Operator = viewer) -> Response:
        title = service.engine.collection(id)["title"]
        body = {"id": id, "title": title, **maps.of(id).tiles.record()}
        return _text(json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode())

    @app.get(
        f"{_MAP}/cells",
        tags=tag,
        summary="Every cell: value, density, 95 % interval",
        response_class=Response,
        responses={**_answers("Arrays over cells", "application/json", schema=record), **refused},
    )
    def cells(id: CollectionId, request: Request, who: Operator = viewer) -> Response:
        return _squeezed(request, maps.of(id).cells, "application/json")

    @app.get(
        f"{_MAP}/cells.geojson",
        tags=tag,
        summary="Every cell as a GeoJSON feature",
        response_class=Response,
        responses={**_answers("A feature collection", "application/geo+json", schema=record), **refused},
    )
    def features(id: CollectionId, request: Request, who: Operator = viewer) -> Response:
        return _squeezed(request, maps.of(id).features, "application/geo+json")

    @app.get(
        "/v1/collections/{id}/guarantee",
        tags=tag,
        summary="What was promised, in words and as a record",
        responses=refused,
    )
    def guarantee(id: CollectionId, who: Operator = viewer) -> GuaranteeBody:
        from mapveil.privacy.guarantee import Guarantee

        found = service.engine.guarantee(id)
        return GuaranteeBody(in_words=Guarantee.from_dict(found).in_words(), guarantee=found)


def _add_pictures(app: FastAPI, service: Service, maps: FinishedMaps) -> None:
    viewer, refused = service.operator("viewer"), refusals(401, 404, 409, 422)
    tag: list[str | Enum] = ["results"]
    kinds = [export.media.partition(";")[0] for export in EXPORTS.values()]

    @app.get(
        _MAP + "/tiles/{z}/{x}/{y}.png",
        tags=tag,
        summary="A web-mercator tile of 256 pixels",
        response_class=Response,
        responses={**_answers("The tile", "image/png"), **refused},
    )
    def tile(
        id: CollectionId,
        z: Annotated[int, Path(ge=0, le=22)],
        x: Tile,
        y: Tile,
        who: Operator = viewer,
        layer: Annotated[
            Layer, Query(description="The density, or half the width of its interval")
        ] = "density",
        theme: Annotated[Theme, Query(description="Whether nobody is paper or darkness")] = "light",
        top: Annotated[
            float | None, Query(gt=0, allow_inf_nan=False, description="Top of another scale")
        ] = None,
        knee: Annotated[
            float | None, Query(gt=0, allow_inf_nan=False, description="Its knee; both or none")
        ] = None,
    ) -> Response:
        found = maps.of(id)
        if max(x, y) >= 1 << z:
            raise NotFound(f"level {z} has columns and rows 0 to {(1 << z) - 1}")
        if found.tiles.legend(layer) is None:
            raise NotFound("the map has no such layer: it carries no bounds")
        key = (z, x, y, layer, theme, top, knee)
        made = found.kept(key, lambda: found.tiles.png(z, x, y, layer, theme, top=top, knee=knee))
        return Response(made, media_type="image/png")

    @app.get(
        _MAP + "/exports/{form}",
        tags=tag,
        summary="The map as a file",
        response_class=Response,
        responses={**_answers("The file", *kinds), **refused},
    )
    def export(id: CollectionId, form: Format, who: Operator = viewer) -> Response:
        found = maps.of(id)
        try:
            with service.drawing:
                body = found.features.plain if form == "geojson" else found.export(form)
        except MissingExtra as error:
            raise NotInstalled(str(error)) from None
        name = f'attachment; filename="mapveil-{id[:8]}{EXPORTS[form].suffix}"'
        return Response(body, media_type=EXPORTS[form].media, headers={"Content-Disposition": name})


def _add_retrieval(app: FastAPI, service: Service, maps: FinishedMaps) -> None:
    refused = refusals(401, 404, 409, 422)
    tag: list[str | Enum] = ["retrieval"]
    security: dict[str, Any] = {"security": [{"operator": ["viewer"]}, {"device": []}]}
    run = service.run

    def built(id: str) -> FinishedMap:
        found = maps.of(id)
        with service.drawing:  # a hint is computed once, however many ask for it first
            _ = found.retrieval
        return found

    @app.get(
        f"{_RETRIEVAL}/offer",
        tags=tag,
        summary="What a client of private retrieval begins with",
        response_class=Response,
        openapi_extra=security,
        responses={**_answers("An offer of mapveil.retrieval", CBOR.decode()), **refused},
    )
    async def offer(id: CollectionId, request: Request) -> Response:
        await service.access.anybody_known(request.scope)
        found = await run(built, id)
        return Response(
            found.retrieval.offer(),
            media_type=CBOR.decode(),
            headers={"Mapveil-Parts": str(found.hint_parts)},
        )

    @app.get(
        _RETRIEVAL + "/hint/{part}",
        tags=tag,
        summary="A part of the hint, to be fetched once",
        response_class=Response,
        openapi_extra=security,
        responses={**_answers("A hint of mapveil.retrieval", CBOR.decode()), **refused},
    )
    async def hint(
        id: CollectionId, part: Annotated[int, Path(ge=0, le=1 << 20)], request: Request
    ) -> Response:
        await service.access.anybody_known(request.scope)
        found = await run(built, id)
        return Response(await run(found.hint_part, part), media_type=CBOR.decode())

    body = {"requestBody": {"required": True, "content": {CBOR.decode(): {"schema": _BINARY}}}}

    @app.post(
        f"{_RETRIEVAL}/query",
        tags=tag,
        summary="Ask for a cell without saying which",
        response_class=Response,
        openapi_extra={**security, **body},
        responses={
            **_answers("An answer of mapveil.retrieval", CBOR.decode()),
            **refused,
            **refusals(413, 415),
        },
    )
    async def query(id: CollectionId, request: Request) -> Response:
        from mapveil.retrieval import OutdatedHint

        asked = await request.body()
        await service.access.anybody_known(request.scope, asked)
        require_media(request.scope, CBOR)
        found = await run(built, id)
        try:
            answer = await run(found.retrieval.answer, asked)
        except OutdatedHint as outdated:
            answer = outdated.reply
        return Response(answer, media_type=CBOR.decode())


def _text(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _squeezed(request: Request, body: Squeezed, media: str) -> Response:
    """A large body, compressed for whoever can read that."""
    headers = {"Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(body.zipped, media_type=media, headers={**headers, "Content-Encoding": "gzip"})
    return Response(body.plain, media_type=media, headers=headers)
