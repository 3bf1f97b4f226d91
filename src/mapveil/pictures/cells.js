(async () => {
  const map = JSON.parse($("map").textContent);
  const canvas = $("view");
  const raster = map.raster, rings = map.rings;
  const [width, height] = map.extent;

  let layers = [], lower, upper, area, row, col, cellAt, shapes, outline, paths, boxes, ringsOf, degrees;
  try {
    [lower, upper, area] = await Promise.all([map.bounds?.[0], map.bounds?.[1], map.area].map(unpack));
    layers = await Promise.all(map.layers.map(async (each) => ({ ...each, values: await unpack(each.values) })));
    for (const each of layers) {
      // A density follows from users and areas; outside the region no area is known.
      if (each.values.over_area) {
        const { values } = layers.find((other) => other.name === each.values.over_area);
        const areaOf = (i) => (typeof area === "number" ? area : area[i]);
        each.values = values.map((users, i) => (areaOf(i) > 0 ? users / areaOf(i) : areaOf(i) === 0 ? 0 : NaN));
      }
      each.read = (cell, style) => {
        const value = each.values[cell];
        const text = Number.isNaN(value) ? "unknown" : each.words ? each.words[value] : `${number(value)} ${each.unit === "1" ? "" : each.unit}`;
        return [each.title, text, style];
      };
    }
    if (raster) {
      row = await unpack(raster.row);
      col = await unpack(raster.col);
      cellAt = new Int32Array(raster.rows * raster.columns).fill(-1);
      for (let i = 0; i < map.size; i++) cellAt[row[i] * raster.columns + col[i]] = i;
    } else {
      shapes = await unpackRings(rings);
      degrees = { lon: await unpack(rings.lon), lat: await unpack(rings.lat) };
    }
    if (map.outline) outline = pathsOf(await unpackRings(map.outline)).get(0);
  } catch (error) {
    cannotDraw(canvas, error);
    return;
  }
  if (shapes) {
    paths = pathsOf(shapes);
    boxes = new Map();
    ringsOf = new Map();
    for (let k = 0; k + 1 < shapes.start.length; k++) {
      const cell = shapes.cell[k], box = boxes.get(cell) || [Infinity, Infinity, -Infinity, -Infinity];
      for (let i = shapes.start[k]; i < shapes.start[k + 1]; i++) {
        box[0] = Math.min(box[0], shapes.x[i]); box[2] = Math.max(box[2], shapes.x[i]);
        box[1] = Math.min(box[1], shapes.y[i]); box[3] = Math.max(box[3], shapes.y[i]);
      }
      boxes.set(cell, box);
      if (!ringsOf.has(cell)) ringsOf.set(cell, []);
      ringsOf.get(cell).push(k);
    }
  }

  // ---- colours ----
  const colour = colourRamp(map.ramp);
  let layer = layers[0], selected = -2;
  let { kind, low, top: most, knee, under, palest } = layer.scale;
  const shownOf = (i) => layer.values[i];
  const scaleNow = () => ({ kind, low, top: most, knee });
  const fraction = (d) => Math.min(1, fractionOf(scaleNow(), d));
  const ink = (part) => colour(palest + (1 - palest) * part);
  const underInk = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  const colourOf = (d) => (under && d < low ? underInk(under) : ink(fraction(d)));
  const picture = document.createElement("canvas");
  function paint() {
    if (!raster) return;
    picture.width = raster.columns;
    picture.height = raster.rows;
    const ink = picture.getContext("2d"), image = ink.createImageData(raster.columns, raster.rows);
    for (let i = 0; i < map.size; i++) {
      const density = shownOf(i);
      if (Number.isNaN(density)) continue;
      const at = 4 * (row[i] * raster.columns + col[i]);
      image.data.set(colourOf(density), at);
      image.data[at + 3] = 255;
    }
    ink.putImageData(image, 0, 0);
  }

  function paintMap(pen, view) {
    if (raster) {
      pen.imageSmoothingEnabled = (width * view.scale * view.dense) / raster.columns < 1;
      pen.drawImage(picture, 0, 0, width, height);
    }
    if (paths) {
      const [left, north] = view.toPlane(0, 0), [right, south] = view.toPlane(view.wide, view.high);
      pen.lineWidth = 0.6 / view.scale;
      for (const [cell, path] of paths) {
        const box = boxes.get(cell);
        if (box[2] < left || box[0] > right || box[3] < north || box[1] > south) continue;
        const density = shownOf(cell);
        if (Number.isNaN(density)) continue;
        pen.fillStyle = pen.strokeStyle = `rgb(${colourOf(density).join()})`;
        pen.fill(path, "evenodd");
        pen.stroke(path);
      }
    }
    const line = (path, width, paint) => {
      pen.lineWidth = width / view.scale;
      pen.strokeStyle = paint;
      pen.stroke(path);
    };
    if (outline) line(outline, 1.2, css("--quiet"));
    if (selected >= 0) {
      const path = paths ? paths.get(selected) : new Path2D();
      if (raster) path.rect((col[selected] * width) / raster.columns, (row[selected] * height) / raster.rows, width / raster.columns, height / raster.rows);
      if (path) { line(path, 4, css("--card")); line(path, 2, "#e4572e"); }
    }
  }

  // ---- which cell, and what is known of it ----
  function find(px, py) {
    const [x, y] = view.toPlane(px, py), pen = view.pen;
    if (raster) {
      const c = Math.floor((x / width) * raster.columns), r = Math.floor((y / height) * raster.rows);
      if (c < 0 || r < 0 || c >= raster.columns || r >= raster.rows) return -1;
      const cell = cellAt[r * raster.columns + c];
      return cell >= 0 && !(typeof area !== "number" && Number.isNaN(area[cell])) ? cell : -1;
    }
    pen.setTransform(1, 0, 0, 1, 0, 0);
    for (const [cell, box] of boxes) {
      if (x < box[0] || x > box[2] || y < box[1] || y > box[3]) continue;
      if (pen.isPointInPath(paths.get(cell), x, y, "evenodd")) return cell;
    }
    return -1;
  }
  function corner(c, r) {
    if (raster.straight) return [raster.lon[c], raster.lat[r]];
    const n = raster.mesh, u = (c / raster.columns) * n, v = (r / raster.rows) * n;
    const i = Math.min(Math.floor(u), n - 1), j = Math.min(Math.floor(v), n - 1);
    return [raster.lon, raster.lat].map((grid) => {
      const at = (a, b) => grid[(j + b) * (n + 1) + i + a];
      return (1 - v + j) * ((1 - u + i) * at(0, 0) + (u - i) * at(1, 0)) + (v - j) * ((1 - u + i) * at(0, 1) + (u - i) * at(1, 1));
    });
  }
  function centre(cell) {
    if (!raster) return [rings.centre_lon[cell], rings.centre_lat[cell]];
    const a = corner(col[cell], row[cell]), b = corner(col[cell] + 1, row[cell] + 1);
    return [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
  }
  function read(cell) {
    if (cell === selected) return;
    selected = cell;
    const rows = [];
    if (cell < 0) {
      rows.push(["Outside the map", ""]);
    } else {
      rows.push(layers[map.main].read(cell, "main"));
      if (lower) {
        rows.push([`${map.bounds[2]} bounds`, range(lower[cell], upper[cell])]);
      }
      for (const [at, each] of layers.entries()) {
        if (at !== map.main && !Number.isNaN(each.values[cell])) rows.push(each.read(cell));
      }
      if (map.georeferenced) {
        const [lon, lat] = centre(cell);
        rows.push(["Longitude", degree(lon, "EW")], ["Latitude", degree(lat, "NS")]);
      } else {
        rows.push(["Column, row", `${col[cell]}, ${row[cell]}`]);
      }
      rows.push(["Cell", String(cell)]);
    }
    tell(rows);
    view.redraw();
  }

  // ---- legend ----
  function drawLegend() {
    const legend = $("legend");
    const scale = scaleNow();
    paintLegend(legend, ink, ticksOf(scale), fraction);
    $("below").hidden = !under;
    if (under) {
      $("below").style.setProperty("--swatch", under);
      $("below").textContent = `Below ${number(low)} ${layer.unit}: a coverage hole`;
    }
    legend.setAttribute("aria-label", `Colours from ${number(low)} to ${number(most)} ${layer.unit}, ${kind === "log" ? "logarithmic" : "linear"} scale`);
  }
  function recolour() {
    paint();
    drawLegend();
    view.redraw();
  }
  function choose(next) {
    kind = next;
    for (const name of ["log", "linear"]) $(name).setAttribute("aria-pressed", String(name === kind));
    recolour();
  }

  // ---- what the colours show ----
  for (const [at, { title }] of layers.entries()) $("layer").append(new Option(title, String(at)));
  $("choice").hidden = layers.length === 1;
  $("layer").addEventListener("change", () => {
    layer = layers[Number($("layer").value)];
    ({ kind, low, top: most, knee, under, palest } = layer.scale);
    const { title, unit } = layer;
    $("colours").textContent = unit && unit !== "1" ? `${title}, ${unit}` : title;
    $("scales").hidden = kind !== "log";
    choose(kind);
  });
  $("scales").hidden = kind !== "log";

  // ---- downloads ----
  const short = (value) => (Number.isFinite(value) ? Number(value.toPrecision(5)) : null);
  const columns = [...layers.filter((_, at) => at === map.main), ...layers.filter((_, at) => at !== map.main)].map(({ name, values }) => [name, values]);
  if (lower) columns.push(["lower", lower], ["upper", upper]);
  const known = (cell) => ({ cell, ...Object.fromEntries(columns.map(([name, values]) => [name, short(values[cell])])) });
  function saveCsv() {
    const place = map.georeferenced ? ["lon", "lat"] : ["column", "row"];
    const parts = [["cell", ...place, ...Object.keys(known(0)).slice(1)].join() + "\n"];
    for (let i = 0; i < map.size; i++) {
      const k = known(i), at = map.georeferenced ? centre(i).map((v) => v.toFixed(6)) : [col[i], row[i]];
      parts.push([i, ...at, ...Object.values(k).slice(1)].map((v) => v ?? "").join() + "\n");
    }
    save(parts, map, ".csv", "text/csv");
  }
  function outlineOf(cell) {
    if (raster) {
      const c = col[cell], r = row[cell];
      return { type: "Polygon", coordinates: [[corner(c, r + 1), corner(c + 1, r + 1), corner(c + 1, r), corner(c, r), corner(c, r + 1)]] };
    }
    // By orientation: an outer ring begins a polygon, a ring turning the other way is a hole in it.
    const polygons = [];
    let outer = 0;
    for (const k of ringsOf.get(cell) || []) {
      const ring = [];
      let turn = 0;
      for (let i = shapes.start[k]; i < shapes.start[k + 1]; i++) {
        ring.push([rings.origin[0] + degrees.lon[i], rings.origin[1] + degrees.lat[i]].map((v) => Number(v.toFixed(6))));
        if (i > shapes.start[k]) turn += shapes.x[i - 1] * shapes.y[i] - shapes.x[i] * shapes.y[i - 1];
      }
      if (polygons.length === 0) outer = Math.sign(turn);
      const isOuter = Math.sign(turn) === outer;
      // RFC 7946: outer rings counterclockwise; y points down here, so that is a negative turn.
      if (turn > 0 === isOuter) ring.reverse();
      if (isOuter) polygons.push([ring]); else polygons[polygons.length - 1].push(ring);
    }
    return { type: "MultiPolygon", coordinates: polygons };
  }
  function saveGeojson() {
    const head = JSON.stringify({ ...map.metadata, empty_cells_left_out: true, digits: 4 });
    const parts = [`{"type":"FeatureCollection","mapveil":${head},"features":[`];
    let separator = "\n";
    for (let i = 0; i < map.size; i++) {
      const value = layers[map.main].values[i];
      if (value === map.empty || Number.isNaN(value)) continue;
      parts.push(separator + JSON.stringify({ type: "Feature", id: i, geometry: outlineOf(i), properties: known(i) }));
      separator = ",\n";
    }
    parts.push("\n]}\n");
    save(parts, map, ".geojson", "application/geo+json");
  }

  // ---- hands ----
  $("log").addEventListener("click", () => choose("log"));
  $("linear").addEventListener("click", () => choose("linear"));
  $("csv").addEventListener("click", saveCsv);
  $("geojson").hidden = !map.georeferenced;
  $("geojson").addEventListener("click", saveGeojson);
  const view = mapView({
    canvas, map, paint: paintMap, resized: drawLegend, read: (px, py) => read(find(px, py)),
  });
  paint();
  view.start();
  themeButton(recolour);
})();
