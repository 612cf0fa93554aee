// What the page was given, and how it is read. Texts of others reach the page as text only.
const PAGE = JSON.parse(document.getElementById("data").textContent);
const TYPES = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array };
const ARRAYS = ["label", "offset", "tied", "threshold", "risk_kept", "risk_threshold", "group"];

async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new TYPES[packed.type](await new Response(stream).arrayBuffer());
}

// Every series: one score of one run on one set, with its order of rejection unpacked.
async function readSeries() {
  const waiting = [];
  PAGE.runs.forEach((run, number) => {
    run.number = number;
    for (const [setName, set] of Object.entries(run.sets)) {
      set.name = setName;
      for (const [name, series] of Object.entries(set.scores)) {
        Object.assign(series, { name, run, set, n: set.n });
        for (const key of ARRAYS) {
          if (series[key]) waiting.push(unpack(series[key]).then((found) => { series[key] = found; }));
        }
      }
    }
  });
  await Promise.all(waiting);
  for (const run of PAGE.runs) {
    for (const set of Object.values(run.sets)) Object.values(set.scores).forEach(countErrors);
  }
}

function countErrors(series) {
  series.errors = new Uint32Array(series.n + 1);
  for (let i = 0; i < series.n; i += 1) {
    series.errors[i + 1] = series.errors[i] + (series.offset[i] ? 1 : 0);
  }
}

// Elements. Children are elements or plain text; nothing is ever parsed as markup.
function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const byId = (id) => document.getElementById(id);
function put(id, ...children) { byId(id).replaceChildren(...children.flat().filter(Boolean)); }

// Numbers as people read them.
const DASH = "–";
const known = (value) => typeof value === "number" && Number.isFinite(value);
const percent = (value, digits = 2) => (known(value) ? `${fixed(100 * value, digits)} %` : DASH);
// As Python writes it: exact halves go to the even digit. Only odd multiples of 1/2^(d+1) are such.
function fixed(value, digits) {
  const halves = value * 2 ** (digits + 1);
  if (!Number.isInteger(halves) || halves % 2 === 0) return value.toFixed(digits);
  const low = Math.floor(value * 10 ** digits);
  return ((low % 2 ? low + 1 : low) / 10 ** digits).toFixed(digits);
}
const whole = (value) => value.toLocaleString("en-GB");
// Tied examples at the border count in part, so a count may be broken.
const count = (value) => (Number.isInteger(value) ? whole(value) : value.toLocaleString("en-GB", { minimumFractionDigits: 1, maximumFractionDigits: 1 }));
function short(value) {
  if (value >= Number.MAX_VALUE) return "accepts all";
  if (!known(value)) return String(value ?? DASH);
  const text = value.toPrecision(6);
  return String(Number(text));
}
// A number with its exact value beside it, for whoever reads it by machine.
const figure = (value, text) => h("data", { value: known(value) ? value : "" }, text);
