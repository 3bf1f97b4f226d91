"use strict";
(async () => {
  const $ = (id) => document.getElementById(id);
  const map = JSON.parse($("map").textContent);
  const canvas = $("view"), pen = canvas.getContext("2d");
  const raster = map.raster, rings = map.rings;
  const [width, height] = map.extent;
  const aspect = map.metres[1] / map.metres[0];

  // ---- data: 32-bit words, bytes of like weight together, deflated, base64 ----
  const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  async function unpack(packed) {
    if (packed === null || typeof packed !== "object") return packed;
    const stream = new Blob([bytesOf(packed.data)]).stream().pipeThrough(new DecompressionStream("deflate"));
    const planes = new Uint8Array(await new Response(stream).arrayBuffer());
    const count = planes.length / 4, bytes = new Uint8Array(planes.length);
    for (let i = 0; i < count; i++) {
      for (let b = 0; b < 4; b++) bytes[4 * i + b] = planes[b * count + i];
    }
    return packed.type === "i4" ? new Int32Array(bytes.buffer) : new Float32Array(bytes.buffer);
  }
  const unpackRings = async (r) => ({
    x: await unpack(r.x), y: await unpack(r.y), start: await unpack(r.start), cell: await unpack(r.cell),
  });

  let users, lower, upper, area, row, col, cellAt, shapes, outline, paths, boxes, ringsOf, degrees;
  try {
    [users, lower, upper, area] = await Promise.all([map.users, map.lower, map.upper, map.area].map(unpack));
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
    canvas.hidden = true;
    $("trouble").hidden = false;
    $("trouble").textContent = `The map could not be drawn here (${error.message}); a newer browser can.`;
    return;
  }
  const areaOf = (i) => (typeof area === "number" ? area : area[i]);
  const densityOf = (i) => (areaOf(i) > 0 ? users[i] / areaOf(i) : areaOf(i) === 0 ? 0 : NaN);

  function pathsOf(r) {
    const made = new Map();
    for (let k = 0; k + 1 < r.start.length; k++) {
      const path = made.get(r.cell[k]) || new Path2D();
      for (let i = r.start[k]; i < r.start[k + 1]; i++) {
        if (i === r.start[k]) path.moveTo(r.x[i], r.y[i]); else path.lineTo(r.x[i], r.y[i]);
      }
      path.closePath();
      made.set(r.cell[k], path);
    }
    return made;
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
  const ramp = bytesOf(map.ramp), steps = ramp.length / 3;
  const { top: most, knee } = map.scale;
  let kind = "log", chosenTheme = null;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (chosenTheme ? chosenTheme === "dark" : prefersDark.matches);
  const fraction = (d) =>
    Math.min(1, kind === "linear" ? Math.max(d, 0) / most : Math.log1p(Math.max(d, 0) / knee) / Math.log1p(most / knee));
  function colour(part) {
    const step = Math.round(part * (steps - 1));
    // In the dark, nobody is the page's darkness and the densest place shines.
    const at = 3 * (dark() ? steps - 1 - step : step);
    return [ramp[at], ramp[at + 1], ramp[at + 2]];
  }
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const picture = document.createElement("canvas");
  function paint() {
    if (!raster) return;
    picture.width = raster.columns;
    picture.height = raster.rows;
    const ink = picture.getContext("2d"), image = ink.createImageData(raster.columns, raster.rows);
    for (let i = 0; i < map.size; i++) {
      const density = densityOf(i);
      if (Number.isNaN(density)) continue;
      const at = 4 * (row[i] * raster.columns + col[i]);
      image.data.set(colour(fraction(density)), at);
      image.data[at + 3] = 255;
    }
    ink.putImageData(image, 0, 0);
  }

  // ---- the view: its middle in the plane (x right, y down from the north-west corner), pixels per x ----
  const view = { x: width / 2, y: height / 2, scale: 1 };
  let wide = 0, high = 0, selected = -2, waiting = false, atKeys = false;
  const whole = () => Math.min(wide / width, high / (height * aspect)) * 0.96;
  const toPlane = (px, py) => [view.x + (px - wide / 2) / view.scale, view.y + (py - high / 2) / (view.scale * aspect)];
  function keepInside() {
    view.scale = Math.min(Math.max(view.scale, whole() * 0.7), whole() * 4000);
    view.x = Math.min(Math.max(view.x, 0), width);
    view.y = Math.min(Math.max(view.y, 0), height);
  }
  function showWhole() {
    view.x = width / 2; view.y = height / 2; view.scale = whole();
    redraw();
  }
  function zoom(factor, px = wide / 2, py = high / 2) {
    const [x, y] = toPlane(px, py);
    view.scale *= factor;
    keepInside();
    const [nowX, nowY] = toPlane(px, py);
    view.x += x - nowX;
    view.y += y - nowY;
    keepInside();
    redraw();
  }
  function pan(dx, dy) {
    view.x -= dx / view.scale;
    view.y -= dy / (view.scale * aspect);
    keepInside();
    redraw();
  }
  function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  }
  function draw() {
    const dense = window.devicePixelRatio || 1;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    const sx = view.scale * dense, sy = sx * aspect;
    const ox = (wide / 2) * dense - view.x * sx, oy = (high / 2) * dense - view.y * sy;
    if (raster) {
      pen.imageSmoothingEnabled = (width * sx) / raster.columns < 1;
      pen.drawImage(picture, ox, oy, width * sx, height * sy);
    }
    pen.setTransform(sx, 0, 0, sy, ox, oy);
    if (paths) {
      const [left, north] = toPlane(0, 0), [right, south] = toPlane(wide, high);
      pen.lineWidth = 0.6 / view.scale;
      for (const [cell, path] of paths) {
        const box = boxes.get(cell);
        if (box[2] < left || box[0] > right || box[3] < north || box[1] > south) continue;
        const density = densityOf(cell);
        if (Number.isNaN(density)) continue;
        pen.fillStyle = pen.strokeStyle = `rgb(${colour(fraction(density)).join()})`;
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
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    if (atKeys) {
      for (const [size, paint] of [[4, css("--card")], [1.5, css("--ink")]]) {
        pen.lineWidth = size; pen.strokeStyle = paint;
        pen.beginPath();
        pen.moveTo(wide / 2 - 10, high / 2); pen.lineTo(wide / 2 + 10, high / 2);
        pen.moveTo(wide / 2, high / 2 - 10); pen.lineTo(wide / 2, high / 2 + 10);
        pen.stroke();
      }
    }
    drawScaleBar();
  }
  function roundDown(value) {
    const power = 10 ** Math.floor(Math.log10(value));
    return Math.max(...[1, 2, 5].map((step) => step * power).filter((step) => step <= value * (1 + 1e-9)));
  }
  function drawScaleBar() {
    if (!map.georeferenced) return;
    const metres = roundDown((Math.min(140, wide / 3) / view.scale) * map.metres[0]);
    const length = (metres / map.metres[0]) * view.scale, x = 14, y = high - 14;
    const name = metres >= 1000 ? `${metres / 1000} km` : `${metres} m`;
    pen.font = "13px system-ui, sans-serif";
    pen.textAlign = "center";
    for (const [size, paint] of [[4, css("--card")], [1.6, css("--ink")]]) {
      pen.lineWidth = size; pen.strokeStyle = paint; pen.lineJoin = "round";
      pen.beginPath();
      pen.moveTo(x, y - 6); pen.lineTo(x, y); pen.lineTo(x + length, y); pen.lineTo(x + length, y - 6);
      pen.stroke();
      if (size === 4) pen.strokeText(name, x + length / 2, y - 7);
    }
    pen.fillStyle = css("--ink");
    pen.fillText(name, x + length / 2, y - 7);
  }

  // ---- which cell, and what is known of it ----
  function find(px, py) {
    const [x, y] = toPlane(px, py);
    if (raster) {
      const c = Math.floor((x / width) * raster.columns), r = Math.floor((y / height) * raster.rows);
      if (c < 0 || r < 0 || c >= raster.columns || r >= raster.rows) return -1;
      const cell = cellAt[r * raster.columns + c];
      return cell >= 0 && !Number.isNaN(densityOf(cell)) ? cell : -1;
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
  const number = (value) => value.toLocaleString("en", { maximumSignificantDigits: 3 }).replaceAll(",", "\u202f");
  const degree = (value, letters) => `${Math.abs(value).toFixed(5)}° ${letters[value < 0 ? 1 : 0]}`;
  function read(cell) {
    if (cell === selected) return;
    selected = cell;
    const rows = [];
    if (cell < 0) {
      rows.push(["Outside the map", ""]);
    } else {
      rows.push(["Estimated users", number(users[cell]), "main"]);
      if (lower) {
        const bounds = upper[cell] === Infinity ? `at least ${number(lower[cell])}` : `${number(lower[cell])} to ${number(upper[cell])}`;
        rows.push([`${map.certainty} bounds`, bounds]);
      }
      if (map.georeferenced) {
        const [lon, lat] = centre(cell);
        rows.push(["Density", `${number(densityOf(cell))} per km²`]);
        rows.push(["Longitude", degree(lon, "EW")], ["Latitude", degree(lat, "NS")]);
      } else {
        rows.push(["Column, row", `${col[cell]}, ${row[cell]}`]);
      }
      rows.push(["Cell", String(cell)]);
    }
    $("cell").replaceChildren(...rows.flatMap(([name, text, style]) => {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = name; dd.textContent = text; if (style) dd.className = style;
      return [dt, dd];
    }));
    redraw();
  }

  // ---- legend ----
  function drawLegend() {
    const legend = $("legend"), dense = window.devicePixelRatio || 1, full = legend.clientWidth;
    legend.width = full * dense; legend.height = 46 * dense;
    const ink = legend.getContext("2d"), x0 = 4, across = full - 8;
    ink.scale(dense, dense);
    for (let i = 0; i < across; i++) {
      ink.fillStyle = `rgb(${colour(i / (across - 1)).join()})`;
      ink.fillRect(x0 + i, 0, 1.5, 18);
    }
    ink.strokeStyle = css("--line");
    ink.strokeRect(x0 + 0.5, 0.5, across - 1, 17);
    ink.fillStyle = css("--quiet");
    ink.font = "12px system-ui, sans-serif";
    const ticks = [0];
    if (kind === "linear") {
      const step = roundDown(most / 3);
      for (let tick = step; tick <= most * (1 + 1e-9); tick += step) ticks.push(tick);
    } else {
      for (let tick = knee; tick <= most * (1 + 1e-9); tick *= 10) ticks.push(tick);
    }
    let free = -Infinity;
    for (const tick of ticks) {
      const text = number(tick), x = x0 + fraction(tick) * across, half = ink.measureText(text).width / 2;
      const middle = Math.min(Math.max(x, half), full - half);
      ink.fillRect(Math.min(x, x0 + across - 1), 18, 1, 5);
      if (middle - half < free) continue;
      ink.textAlign = "center";
      ink.fillText(text, middle, 37);
      free = middle + half + 8;
    }
    legend.setAttribute("aria-label", `Colours from 0 to ${number(most)} ${map.unit}, ${kind === "log" ? "logarithmic" : "linear"} scale`);
  }
  function recolour() {
    $("theme").textContent = dark() ? "Light" : "Dark";
    $("theme").setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
    paint();
    drawLegend();
    redraw();
  }
  function choose(next) {
    kind = next;
    for (const name of ["log", "linear"]) $(name).setAttribute("aria-pressed", String(name === kind));
    recolour();
  }

  // ---- downloads ----
  function save(parts, name, type) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(parts, { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }
  const short = (value) => (Number.isFinite(value) ? Number(value.toPrecision(5)) : null);
  function known(cell) {
    return {
      cell, users: short(users[cell]), users_per_km2: map.georeferenced ? short(densityOf(cell)) : null,
      lower: lower ? short(lower[cell]) : null, upper: upper ? short(upper[cell]) : null,
    };
  }
  const stem = `mapveil-${map.metadata.method}`.replace(/[^\w-]+/g, "-");
  function saveCsv() {
    const place = map.georeferenced ? ["lon", "lat"] : ["column", "row"];
    const parts = [["cell", ...place, "users", "users_per_km2", "lower", "upper"].join() + "\n"];
    for (let i = 0; i < map.size; i++) {
      const k = known(i), at = map.georeferenced ? centre(i).map((v) => v.toFixed(6)) : [col[i], row[i]];
      parts.push([i, ...at, k.users, k.users_per_km2, k.lower, k.upper].map((v) => v ?? "").join() + "\n");
    }
    save(parts, `${stem}.csv`, "text/csv");
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
      if (users[i] === 0) continue;
      parts.push(separator + JSON.stringify({ type: "Feature", id: i, geometry: outlineOf(i), properties: known(i) }));
      separator = ",\n";
    }
    parts.push("\n]}\n");
    save(parts, `${stem}.geojson`, "application/geo+json");
  }

  // ---- hands ----
  const fingers = new Map();
  let moved = 0;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const spread = () => {
    const [a, b] = [...fingers.values()];
    return { x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2, size: Math.hypot(a[0] - b[0], a[1] - b[1]) };
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    if (fingers.size === 0) moved = 0;
    fingers.set(event.pointerId, place(event));
    atKeys = false;
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = place(event), before = fingers.get(event.pointerId);
    if (!before) { atKeys = false; read(find(...at)); return; }
    const old = fingers.size === 2 ? spread() : null;
    fingers.set(event.pointerId, at);
    moved += Math.hypot(at[0] - before[0], at[1] - before[1]);
    if (old) {
      const now = spread();
      pan(now.x - old.x, now.y - old.y);
      if (old.size > 0) zoom(now.size / old.size, now.x, now.y);
    } else if (fingers.size === 1) {
      pan(at[0] - before[0], at[1] - before[1]);
    }
  });
  const lift = (event) => {
    if (event.type === "pointerup" && moved < 6 && fingers.size === 1) read(find(...place(event)));
    fingers.delete(event.pointerId);
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("dblclick", (event) => zoom(2, ...place(event)));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
    zoom(Math.exp(-Math.min(Math.max(pixels, -200), 200) * 0.0025), ...place(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = 40, moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (moves[event.key]) pan(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-" || event.key === "_") zoom(1 / 1.5);
    else if (event.key === "0" || event.key === "Home") showWhole();
    else return;
    event.preventDefault();
    atKeys = true;
    read(find(wide / 2, high / 2));
  });
  canvas.addEventListener("blur", () => { atKeys = false; redraw(); });
  $("in").addEventListener("click", () => zoom(1.6));
  $("out").addEventListener("click", () => zoom(1 / 1.6));
  $("all").addEventListener("click", showWhole);
  $("log").addEventListener("click", () => choose("log"));
  $("linear").addEventListener("click", () => choose("linear"));
  $("csv").addEventListener("click", saveCsv);
  if (map.georeferenced) $("geojson").addEventListener("click", saveGeojson); else $("geojson").hidden = true;
  $("theme").addEventListener("click", () => {
    chosenTheme = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosenTheme;
    recolour();
  });
  prefersDark.addEventListener("change", recolour);

  function resize() {
    const part = wide > 0 ? view.scale / whole() : 1, dense = window.devicePixelRatio || 1;
    wide = canvas.clientWidth;
    // As high as the map needs, within what one can see at once.
    const tallest = Math.max(320, Math.min(window.innerHeight * (wide < 600 ? 0.62 : 0.86), 900));
    canvas.style.height = `${Math.round(Math.min(tallest, Math.max(280, ((wide * height) / width) * aspect)))}px`;
    high = canvas.clientHeight;
    canvas.width = Math.round(wide * dense);
    canvas.height = Math.round(high * dense);
    view.scale = part * whole();
    keepInside();
    drawLegend();
    draw();
  }
  paint();
  resize();
  new ResizeObserver(resize).observe(canvas);
  recolour();
})();
