"use strict";
// What every page's map shares: packed arrays, theme, the view that is moved and zoomed, scale bar and hands.
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---- data: 32-bit words, bytes of like weight together, deflated, base64 ----
const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
async function unpack(packed) {
  if (!packed?.data) return packed;
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
function cannotDraw(canvas, error) {
  canvas.hidden = true;
  $("trouble").hidden = false;
  $("trouble").textContent = `The map could not be drawn here (${error.message}); a newer browser can.`;
}

// ---- colours ----
let chosenTheme = null;
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const dark = () => (chosenTheme ? chosenTheme === "dark" : prefersDark.matches);
function colourRamp(text) {
  const ramp = bytesOf(text), steps = ramp.length / 3;
  return (part) => {
    const step = Math.round(part * (steps - 1));
    // In the dark, nobody is the page's darkness and the densest place shines.
    const at = 3 * (dark() ? steps - 1 - step : step);
    return [ramp[at], ramp[at + 1], ramp[at + 2]];
  };
}
function themeButton(recolour) {
  const name = () => {
    $("theme").textContent = dark() ? "Light" : "Dark";
    $("theme").setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
    recolour();
  };
  $("theme").addEventListener("click", () => {
    chosenTheme = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosenTheme;
    name();
  });
  prefersDark.addEventListener("change", name);
  name();
}

// ---- legend: the ramp with ticks under it ----
function paintLegend(legend, colour, ticks, fraction) {
  const dense = window.devicePixelRatio || 1, full = legend.clientWidth;
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
}

// ---- a table of what was pointed at ----
function tell(rows) {
  $("cell").replaceChildren(...rows.flatMap(([name, text, style]) => {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = name; dd.textContent = text; if (style) dd.className = style;
    return [dt, dd];
  }));
}

// ---- downloads ----
// The name says that the map is a simulation or seeded: a CSV has no other place for it.
function save(parts, map, suffix, type) {
  const { method, guarantee } = map.metadata;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = ["mapveil", method, ...guarantee.promise.marks].join("-").replace(/[^\w-]+/g, "-") + suffix;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

// ---- the view: its middle in the plane (x right, y down from the north-west corner), pixels per x ----
// paint(pen, view) draws under a transform of the plane; read(px, py) is told where somebody points.
function mapView({ canvas, map, paint, read, resized }) {
  const pen = canvas.getContext("2d"), [width, height] = map.extent, aspect = map.metres[1] / map.metres[0];
  const view = { pen, aspect, x: width / 2, y: height / 2, scale: 1, wide: 0, high: 0, dense: 1 };
  let waiting = false, atKeys = false;
  const whole = () => Math.min(view.wide / width, view.high / (height * aspect)) * 0.96;
  view.toPlane = (px, py) => [view.x + (px - view.wide / 2) / view.scale, view.y + (py - view.high / 2) / (view.scale * aspect)];
  view.toScreen = (x, y) => [(x - view.x) * view.scale + view.wide / 2, (y - view.y) * view.scale * aspect + view.high / 2];
  function keepInside() {
    view.scale = Math.min(Math.max(view.scale, whole() * 0.7), whole() * 4000);
    view.x = Math.min(Math.max(view.x, 0), width);
    view.y = Math.min(Math.max(view.y, 0), height);
  }
  function showWhole() {
    view.x = width / 2; view.y = height / 2; view.scale = whole();
    redraw();
  }
  function zoom(factor, px = view.wide / 2, py = view.high / 2) {
    const [x, y] = view.toPlane(px, py);
    view.scale *= factor;
    keepInside();
    const [nowX, nowY] = view.toPlane(px, py);
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
    const dense = view.dense = window.devicePixelRatio || 1;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    const sx = view.scale * dense, sy = sx * aspect;
    pen.setTransform(sx, 0, 0, sy, (view.wide / 2) * dense - view.x * sx, (view.high / 2) * dense - view.y * sy);
    paint(pen, view);
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    if (atKeys) {
      for (const [size, ink] of [[4, css("--card")], [1.5, css("--ink")]]) {
        pen.lineWidth = size; pen.strokeStyle = ink;
        pen.beginPath();
        pen.moveTo(view.wide / 2 - 10, view.high / 2); pen.lineTo(view.wide / 2 + 10, view.high / 2);
        pen.moveTo(view.wide / 2, view.high / 2 - 10); pen.lineTo(view.wide / 2, view.high / 2 + 10);
        pen.stroke();
      }
    }
    drawScaleBar();
  }
  function drawScaleBar() {
    if (!map.georeferenced) return;
    const metres = roundDown((Math.min(140, view.wide / 3) / view.scale) * map.metres[0]);
    const length = (metres / map.metres[0]) * view.scale, x = 14, y = view.high - 14;
    const name = metres >= 1000 ? `${metres / 1000} km` : `${metres} m`;
    pen.font = "13px system-ui, sans-serif";
    pen.textAlign = "center";
    for (const [size, ink] of [[4, css("--card")], [1.6, css("--ink")]]) {
      pen.lineWidth = size; pen.strokeStyle = ink; pen.lineJoin = "round";
      pen.beginPath();
      pen.moveTo(x, y - 6); pen.lineTo(x, y); pen.lineTo(x + length, y); pen.lineTo(x + length, y - 6);
      pen.stroke();
      if (size === 4) pen.strokeText(name, x + length / 2, y - 7);
    }
    pen.fillStyle = css("--ink");
    pen.fillText(name, x + length / 2, y - 7);
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
    if (!before) { atKeys = false; read(...at); return; }
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
    if (event.type === "pointerup" && moved < 6 && fingers.size === 1) read(...place(event));
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
    read(view.wide / 2, view.high / 2);
  });
  canvas.addEventListener("blur", () => { atKeys = false; redraw(); });
  $("in").addEventListener("click", () => zoom(1.6));
  $("out").addEventListener("click", () => zoom(1 / 1.6));
  $("all").addEventListener("click", showWhole);

  function resize() {
    const part = view.wide > 0 ? view.scale / whole() : 1, dense = window.devicePixelRatio || 1;
    view.wide = canvas.clientWidth;
    // As high as the map needs, within what one can see at once.
    const tallest = Math.max(320, Math.min(window.innerHeight * (view.wide < 600 ? 0.62 : 0.86), 900));
    canvas.style.height = `${Math.round(Math.min(tallest, Math.max(280, ((view.wide * height) / width) * aspect)))}px`;
    view.high = canvas.clientHeight;
    canvas.width = Math.round(view.wide * dense);
    canvas.height = Math.round(view.high * dense);
    view.scale = part * whole();
    keepInside();
    resized();
    draw();
  }
  view.redraw = redraw;
  view.start = () => { resize(); new ResizeObserver(resize).observe(canvas); };
  return view;
}
