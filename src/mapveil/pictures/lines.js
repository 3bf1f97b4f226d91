(async () => {
  const map = JSON.parse($("map").textContent), canvas = $("view");
  const facts = {};
  let x, y, start, value, mark, dots;
  try {
    [x, y, start, value, mark] = await Promise.all([map.x, map.y, map.start, map.value, map.mark].map(unpack));
    dots = map.dots && { x: await unpack(map.dots.x), y: await unpack(map.dots.y), size: await unpack(map.dots.size) };
    for (const [name, column] of Object.entries(map.facts)) facts[name] = Array.isArray(column) ? column : await unpack(column);
  } catch (error) {
    cannotDraw(canvas, error);
    return;
  }
  const count = start.length - 1, paths = [], boxes = [];
  for (let k = 0; k < count; k++) {
    const path = new Path2D(), box = [Infinity, Infinity, -Infinity, -Infinity];
    for (let i = start[k]; i < start[k + 1]; i++) {
      if (i === start[k]) path.moveTo(x[i], y[i]); else path.lineTo(x[i], y[i]);
      box[0] = Math.min(box[0], x[i]); box[1] = Math.min(box[1], y[i]);
      box[2] = Math.max(box[2], x[i]); box[3] = Math.max(box[3], y[i]);
    }
    paths.push(path);
    boxes.push(box);
  }
  // Small values first, marked lines last: what matters most lies on top.
  const order = [...paths.keys()].sort((a, b) => mark[a] - mark[b] || (value[a] || 0) - (value[b] || 0));

  // ---- colours and widths ----
  const ramp = colourRamp(map.ramp), { top: most, knee } = map.scale, { faintest } = map;
  const fraction = (v) => Math.min(1, fractionOf(map.scale, v));
  const colour = (part) => ramp(faintest + (1 - faintest) * part);
  const [thin, thick] = map.widths;
  let least = 0, selected = -1;
  const visible = (k) => mark[k] >= 0 || !(value[k] < least);

  function paint(pen, view) {
    const [left, north] = view.toPlane(0, 0), [right, south] = view.toPlane(view.wide, view.high);
    const seen = (k) => boxes[k][2] >= left && boxes[k][0] <= right && boxes[k][3] >= north && boxes[k][1] <= south;
    const grow = Math.min(2.2, Math.max(1, Math.sqrt(view.scale / whole(view))));
    // Lines keep their width on the screen, whatever the plane's units are.
    pen.lineCap = pen.lineJoin = "round";
    const line = (k, width, paint) => {
      pen.lineWidth = width / view.scale;
      pen.strokeStyle = paint;
      pen.stroke(paths[k]);
    };
    if (dots) {
      for (let i = 0; i < dots.x.length; i++) dot(pen, view, dots.x[i], dots.y[i], dots.size[i]);
    }
    for (const k of order) {
      if (!visible(k) || !seen(k)) continue;
      if (mark[k] >= 0) {
        line(k, 7, css("--card"));
        line(k, 4, map.marks[mark[k]].colour);
      } else if (Number.isNaN(value[k])) {
        line(k, thin * grow, css("--line"));
      } else {
        const part = fraction(value[k]);
        line(k, (thin + (thick - thin) * part) * grow, `rgb(${colour(part).join()})`);
      }
    }
    if (selected >= 0 && visible(selected)) {
      line(selected, 7, css("--card"));
      line(selected, 3, "#e4572e");
      if (map.directed) arrow(pen, view, selected);
    }
  }
  const whole = (view) => Math.min(view.wide / map.extent[0], view.high / (map.extent[1] * view.aspect));
  function dot(pen, view, px, py, size) {
    pen.fillStyle = size > 0 ? `rgb(${colour(fraction(size)).join()})` : css("--line");
    pen.beginPath();
    const r = (size > 0 ? 3 + 6 * fraction(size) : 1.2) / view.scale;
    pen.ellipse(px, py, r, r / view.aspect, 0, 0, 2 * Math.PI);
    pen.fill();
  }
  function arrow(pen, view, k) {
    const end = start[k + 1] - 1, [ax, ay] = view.toScreen(x[end - 1], y[end - 1]), [bx, by] = view.toScreen(x[end], y[end]);
    const angle = Math.atan2(by - ay, bx - ax);
    pen.save();
    pen.setTransform(view.dense, 0, 0, view.dense, 0, 0);
    pen.translate(bx, by);
    pen.rotate(angle);
    pen.fillStyle = "#e4572e";
    pen.beginPath();
    pen.moveTo(4, 0); pen.lineTo(-10, 6); pen.lineTo(-10, -6);
    pen.fill();
    pen.restore();
  }

  // ---- which line, and what is known of it ----
  function find(px, py) {
    let best = 10, found = -1;
    const [ox, oy] = view.toPlane(px - best, py - best), [ex, ey] = view.toPlane(px + best, py + best);
    for (let at = order.length - 1; at >= 0; at--) {
      const k = order[at];
      if (!visible(k) || (Number.isNaN(value[k]) && mark[k] < 0)) continue;
      if (boxes[k][2] < ox || boxes[k][0] > ex || boxes[k][3] < oy || boxes[k][1] > ey) continue;
      let [ax, ay] = view.toScreen(x[start[k]], y[start[k]]);
      for (let i = start[k] + 1; i < start[k + 1]; i++) {
        const [bx, by] = view.toScreen(x[i], y[i]), dx = bx - ax, dy = by - ay, long = dx * dx + dy * dy;
        const t = long > 0 ? Math.min(1, Math.max(0, ((px - ax) * dx + (py - ay) * dy) / long)) : 0;
        const far = Math.hypot(px - ax - t * dx, py - ay - t * dy);
        if (far < best - 1e-9) { best = far; found = k; }
        [ax, ay] = [bx, by];
      }
    }
    return found;
  }
  const said = (column, k) => (typeof column[k] === "number" ? (Number.isNaN(column[k]) ? "" : number(column[k])) : column[k]);
  function read(k) {
    if (k === selected) return;
    selected = k;
    tell(k < 0 ? [["Point at a line", ""]]
      : Object.entries(facts).map(([name, column], at) => [name, said(column, k), at === 0 ? "main" : ""]).filter((row) => row[1] !== ""));
    view.redraw();
  }

  // ---- legend, and the smallest value that is shown ----
  function drawLegend() {
    paintLegend($("legend"), colour, ticksOf(map.scale), fraction);
    $("legend").setAttribute("aria-label", `Colours from 0 to ${number(most)} ${map.unit}, logarithmic scale`);
  }
  function choose() {
    const part = Number($("least").value) / 100;
    least = part > 0 ? Math.expm1(part * Math.log1p(most / knee)) * knee : 0;
    $("shown").textContent = `${number(least)} ${map.unit}`;
    view.redraw();
  }
  for (const { name, colour: ink } of map.marks) {
    const row = document.createElement("p"), patch = document.createElement("span");
    patch.className = "patch";
    patch.style.background = ink;
    row.append(patch, name);
    $("marks").append(row);
  }

  // ---- downloads ----
  $("sizes").hidden = false;
  const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const plain = (v) => (typeof v === "number" ? (Number.isFinite(v) ? String(Number(v.toPrecision(5))) : "") : quote(v));
  $("csv").addEventListener("click", () => {
    const rows = [Object.keys(facts).map(quote).join()];
    for (let k = 0; k < count; k++) rows.push(Object.values(facts).map((column) => plain(column[k])).join());
    save([rows.join("\n") + "\n"], map, ".csv", "text/csv");
  });

  const view = mapView({ canvas, map, paint, resized: drawLegend, read: (px, py) => read(find(px, py)) });
  view.start();
  // Too many lines at once say nothing: the page opens with the largest.
  const values = [...value].filter((v, k) => mark[k] < 0 && v >= 0).sort((a, b) => b - a);
  if (map.directed && values.length > 80) $("least").value = String(Math.ceil(100 * fraction(values[80])));
  $("least").addEventListener("input", choose);
  choose();
  themeButton(() => { drawLegend(); view.redraw(); });
})();
