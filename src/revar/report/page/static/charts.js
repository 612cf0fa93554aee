// Drawings: inline SVG, drawn at the width there is, so that letters keep their size.

const MARGIN = { left: 46, right: 12, top: 10, bottom: 40 };

function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((one) => one >= rough * 0.999) ?? 10 * power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) {
    found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  }
  return found;
}

const tickText = (value, unit) => (unit === "%" ? String(Math.round(value * 1e4) / 100) : String(Number(value.toPrecision(4))));

// A frame with axes; `paint(svg, x, y, frame)` adds what is shown. Redrawn when its width changes.
function chart(options) {
  const place = h("div", { class: "plot" });
  let width = 0;
  const draw = () => {
    width = place.clientWidth;
    if (width < 60) return;
    const height = options.height ?? Math.round(Math.min(340, Math.max(220, width * 0.58)));
    const frame = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: height - MARGIN.bottom, width, height };
    const [x0, x1] = options.x.range;
    const [y0, y1] = options.y.range;
    const x = (value) => frame.left + ((value - x0) / (x1 - x0 || 1)) * (frame.right - frame.left);
    const y = (value) => frame.bottom - ((value - y0) / (y1 - y0 || 1)) * (frame.bottom - frame.top);
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": options.label, class: options.grab ? "grab" : null });
    for (const at of ticks(y0, y1, 5)) {
      svg.append(s("line", { class: "gridline", x1: frame.left, x2: frame.right, y1: y(at), y2: y(at) }));
      svg.append(s("text", { x: frame.left - 6, y: y(at) + 4, "text-anchor": "end" }, tickText(at, options.y.unit)));
    }
    for (const at of ticks(x0, x1, width < 380 ? 4 : 6)) {
      svg.append(s("line", { class: "axis", x1: x(at), x2: x(at), y1: frame.bottom, y2: frame.bottom + 4 }));
      svg.append(s("text", { x: x(at), y: frame.bottom + 17, "text-anchor": "middle" }, tickText(at, options.x.unit)));
    }
    svg.append(s("line", { class: "axis", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom }));
    svg.append(s("text", { x: (frame.left + frame.right) / 2, y: height - 5, "text-anchor": "middle" }, options.x.label));
    options.paint(svg, x, y, frame);
    place.replaceChildren(svg);
    options.after?.(svg, x, y, frame);
  };
  new ResizeObserver(() => { if (Math.abs(place.clientWidth - width) > 1) draw(); }).observe(place);
  place.redraw = draw;
  return place;
}

// A chart with its heading, what its lines are, and its numbers as a table.
function framed(title, sub, plot, legend, table) {
  return h("figure", {}, h("figcaption", {}, title), sub ? h("p", { class: "sub" }, sub) : null, plot, legend, table);
}

const path = (points, x, y) => points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");

function paintLine(svg, points, x, y, look, strong) {
  svg.append(s("path", { class: `stroke s ${look}${strong ? " strong" : ""}`, d: path(points, x, y) }));
}

function paintBand(svg, grid, band, x, y, look, clip = Infinity) {
  const there = grid.map((at, i) => [at, band[0][i], band[1][i]]).filter(([, low, high]) => known(low) && known(high));
  if (there.length < 2) return;
  const upper = there.map(([at, , high]) => [at, Math.min(high, clip)]);
  const lower = there.map(([at, low]) => [at, Math.min(low, clip)]).reverse();
  svg.append(s("path", { class: `band f ${look}`, d: `${path([...upper, ...lower], x, y)}Z` }));
}

function paintCut(svg, at, x, frame) {
  const line = s("line", { class: "cut", x1: x(at), x2: x(at), y1: frame.top, y2: frame.bottom });
  svg.append(line);
  return line;
}

// Colour tells the score, dashes tell the run.
function look(series) {
  return `k${scoreNames().indexOf(series.name) % 10} d${series.run.number % 4}`;
}

function scoreNames() {
  const names = new Set(Object.keys(PAGE.summaries));
  for (const run of PAGE.runs) for (const set of Object.values(run.sets)) Object.keys(set.scores).forEach((name) => names.add(name));
  return [...names];
}

const runLook = (run) => `k${[0, 6, 2, 7, 4, 1, 8, 3, 9, 5][run.number % 10]} d${run.number % 4}`;

function swatch(kind) {
  return s("svg", { class: "swatch", viewBox: "0 0 26 10", "aria-hidden": "true" }, s("path", { class: `stroke s strong ${kind}`, d: "M0 5H26" }));
}

const label = (series) => (PAGE.runs.length > 1 ? `${series.run.name} · ${series.name}` : series.name);

function legend(items) {
  return h("ul", { class: "legend" }, items.map(([mark, text]) => h("li", {}, mark, text)));
}

const key = (kind) => h("span", { class: `key ${kind}`, "aria-hidden": "true" });
