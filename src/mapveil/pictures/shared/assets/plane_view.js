// A view of a plane that is moved and zoomed by mouse, finger and keys, with a scale bar and degrees.
import { el } from "./dom.js";
import { drawGraticule } from "./graticule.js";
import { roundDown } from "./scale.js";
import { css, onTheme } from "./theme.js";

/**
 * Makes a view: its middle in the plane (x right, y down from the north-west corner), and pixels per unit of x.
 *
 * `plane` has `extent` (width and height), `aspect` (length of a unit of y on the ground in units of x), `metresAt(y)`
 * (metres of a unit of x, or null) and `degrees` (or null). `paint(pen, view)` draws under a transform of the plane,
 * `over(pen, view)` in pixels, and `stamps` are texts on top of all. `read(px, py, how)` is told where somebody points: "hover", "tap", "keys" or "enter"; null when
 * the place is let go. `take(px, py)` gives what follows a drag that begins there, or null where it moves the view.
 * `home()` is the box of the plane that is shown first.
 */
export function planeView({
  plane,
  label,
  paint = () => {},
  over = () => {},
  stamps = [],
  read = () => {},
  take = () => null,
  resized = () => {},
  home = () => [0, 0, ...plane.extent],
  tallest = null,
  deepest = 4000,
  signal,
}) {
  const { aspect = 1, extent } = plane;
  const [width, height] = extent;
  const canvas = el("canvas", { class: "plane", tabindex: 0, role: "application", "aria-label": label });
  const frame = el("div", { class: "map" }, canvas);
  const pen = canvas.getContext("2d");
  const view = { canvas, frame, pen, aspect, x: width / 2, y: height / 2, scale: 1, wide: 0, high: 0, dense: 1 };
  let waiting = false,
    atKeys = false;

  const whole = () => Math.min(view.wide / width, view.high / (height * aspect)) * 0.96;
  view.magnified = () => view.scale / whole();
  view.toPlane = (px, py) => [
    view.x + (px - view.wide / 2) / view.scale,
    view.y + (py - view.high / 2) / (view.scale * aspect),
  ];
  view.toScreen = (x, y) => [
    (x - view.x) * view.scale + view.wide / 2,
    (y - view.y) * view.scale * aspect + view.high / 2,
  ];

  function keepInside() {
    view.scale = Math.min(Math.max(view.scale, whole() * 0.7), whole() * deepest);
    view.x = Math.min(Math.max(view.x, 0), width);
    view.y = Math.min(Math.max(view.y, 0), height);
  }
  /** Shows the box `home`. */
  view.show = () => {
    const [x0, y0, x1, y1] = home();
    [view.x, view.y] = [(x0 + x1) / 2, (y0 + y1) / 2];
    view.scale = 0.96 * Math.min(view.wide / (x1 - x0), view.high / ((y1 - y0) * aspect));
    keepInside();
    view.redraw();
  };
  function zoom(factor, px = view.wide / 2, py = view.high / 2) {
    const [x, y] = view.toPlane(px, py);
    view.scale *= factor;
    keepInside();
    const [nowX, nowY] = view.toPlane(px, py);
    view.x += x - nowX;
    view.y += y - nowY;
    keepInside();
    view.redraw();
  }
  function pan(dx, dy) {
    view.x -= dx / view.scale;
    view.y -= dy / (view.scale * aspect);
    keepInside();
    view.redraw();
  }

  // ---- drawing ----
  view.redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (view.wide > 0) draw();
    });
  };
  function draw() {
    const dense = view.dense;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    const sx = view.scale * dense,
      sy = sx * aspect;
    pen.setTransform(sx, 0, 0, sy, (view.wide / 2) * dense - view.x * sx, (view.high / 2) * dense - view.y * sy);
    paint(pen, view);
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    if (plane.degrees?.x) drawGraticule(pen, view, plane);
    over(pen, view);
    const [x, y] = [view.wide / 2, view.high / 2];
    if (atKeys) haloed([[[x - 10, y], [x + 10, y]], [[x, y - 10], [x, y + 10]]]);
    const metres = plane.metresAt?.(view.y);
    if (metres) drawScaleBar(metres);
    // On the map itself: a part cut out of the page carries them.
    pen.font = "700 12px system-ui, sans-serif";
    pen.textAlign = "left";
    // Clear of the degrees, which stand along the top and the left.
    stamps.forEach((stamp, at) => halo(stamp, plane.degrees ? 74 : 14, (plane.degrees ? 42 : 24) + 16 * at, "--warn"));
    frame.dataset.ready = "yes";
  }
  function haloed(lines) {
    for (const [size, ink] of [[4, "--card"], [1.6, "--ink"]]) {
      pen.lineWidth = size;
      pen.strokeStyle = css(ink);
      pen.lineJoin = "round";
      pen.beginPath();
      for (const [first, ...rest] of lines) {
        pen.moveTo(...first);
        for (const corner of rest) pen.lineTo(...corner);
      }
      pen.stroke();
    }
  }
  function drawScaleBar(metresPerX) {
    const metres = roundDown((Math.min(140, view.wide / 3) / view.scale) * metresPerX);
    const length = (metres / metresPerX) * view.scale,
      x = 14,
      y = view.high - 14;
    const name = metres >= 1000 ? `${metres / 1000} km` : `${metres} m`;
    haloed([[[x, y - 6], [x, y], [x + length, y], [x + length, y - 6]]]);
    pen.font = "13px system-ui, sans-serif";
    pen.textAlign = "center";
    halo(name, x + length / 2, y - 7, "--ink");
  }
  function halo(text, x, y, ink) {
    pen.lineWidth = 4;
    pen.strokeStyle = css("--card");
    pen.strokeText(text, x, y);
    pen.fillStyle = css(ink);
    pen.fillText(text, x, y);
  }

  // ---- mouse and fingers ----
  const fingers = new Map();
  let moved = 0,
    follow = null;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const spread = () => {
    const [a, b] = [...fingers.values()];
    return { x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2, size: Math.hypot(a[0] - b[0], a[1] - b[1]) };
  };
  canvas.addEventListener("pointerdown", (event) => {
    const at = place(event);
    canvas.setPointerCapture(event.pointerId);
    if (fingers.size === 0) {
      moved = 0;
      follow = take(...at);
    }
    fingers.set(event.pointerId, at);
    atKeys = false;
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = place(event),
      before = fingers.get(event.pointerId);
    if (!before) {
      atKeys = false;
      read(...at, "hover");
      return;
    }
    const old = fingers.size === 2 ? spread() : null;
    fingers.set(event.pointerId, at);
    moved += Math.hypot(at[0] - before[0], at[1] - before[1]);
    if (follow) {
      follow(...at);
    } else if (old) {
      const now = spread();
      pan(now.x - old.x, now.y - old.y);
      if (old.size > 0) zoom(now.size / old.size, now.x, now.y);
    } else if (fingers.size === 1) {
      pan(at[0] - before[0], at[1] - before[1]);
    }
  });
  const lift = (event) => {
    if (event.type === "pointerup" && moved < 6 && fingers.size === 1 && !follow) read(...place(event), "tap");
    fingers.delete(event.pointerId);
    if (fingers.size === 0) follow = null;
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("dblclick", (event) => zoom(2, ...place(event)));
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const pixels = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
      zoom(Math.exp(-Math.min(Math.max(pixels, -200), 200) * 0.0025), ...place(event));
    },
    { passive: false },
  );

  // ---- keys: whatever is in the middle is read ----
  const STEP = 40;
  const keys = {
    ArrowLeft: () => pan(STEP, 0),
    ArrowRight: () => pan(-STEP, 0),
    ArrowUp: () => pan(0, STEP),
    ArrowDown: () => pan(0, -STEP),
    "+": () => zoom(1.5),
    "=": () => zoom(1.5),
    "-": () => zoom(1 / 1.5),
    _: () => zoom(1 / 1.5),
    0: () => view.show(),
    Home: () => view.show(),
    Enter: null,
    " ": null,
  };
  const readMiddle = (how = "keys") => {
    atKeys = true;
    read(view.wide / 2, view.high / 2, how);
    view.redraw();
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") read(null, null, "keys");
    if (keys[event.key] === undefined) return;
    event.preventDefault();
    keys[event.key]?.();
    readMiddle(keys[event.key] ? "keys" : "enter");
  });
  canvas.addEventListener("focus", () => {
    if (canvas.matches(":focus-visible")) readMiddle();
  });
  canvas.addEventListener("blur", () => {
    atKeys = false;
    view.redraw();
  });
  const buttons = [
    ["+", "Zoom in", () => zoom(1.6)],
    ["−", "Zoom out", () => zoom(1 / 1.6)],
    ["⌂", "Show the whole map", () => view.show()],
  ].map(([sign, title, click]) =>
    el("button", { type: "button", "aria-label": title, title, on: { click } }, sign),
  );
  frame.append(el("div", { class: "zoom" }, buttons));

  // ---- the frame's size: as high as the map needs, within what one can see at once ----
  function resize() {
    if (canvas.clientWidth === 0) return;
    const magnified = view.wide > 0 ? view.magnified() : 0;
    view.wide = canvas.clientWidth;
    const most = Math.max(320, Math.min(window.innerHeight * (view.wide < 600 ? 0.62 : 0.72), 900));
    const needed = Math.max(280, ((view.wide * height) / width) * aspect);
    view.high = Math.round(tallest ?? Math.min(most, needed));
    canvas.style.height = `${view.high}px`;
    view.dense = window.devicePixelRatio || 1;
    canvas.width = Math.round(view.wide * view.dense);
    canvas.height = Math.round(view.high * view.dense);
    if (magnified) view.scale = magnified * whole();
    else view.show();
    keepInside();
    resized();
    draw();
  }
  // In a frame of its own: the observer must not change what it observes.
  new ResizeObserver(() => requestAnimationFrame(resize)).observe(canvas);
  onTheme(view.redraw, signal);
  return view;
}
