// The operating point: one wish (a coverage, a risk, or the threshold the run keeps), all figures.

const state = { set: "", run: 0, score: "", wish: { kind: "coverage", step: 800 }, visible: new Set() };
const live = [];  // What is told of every move of the slider.
const WATCHED = 5;  // Per cent risk the overview is asked about.

const keyOf = (series) => `${series.run.number}/${series.name}`;
const active = () => PAGE.runs[state.run].sets[state.set].scores[state.score];
const seriesOfSet = () => PAGE.runs.filter((run) => run.sets[state.set]).flatMap((run) => Object.values(run.sets[state.set].scores));
const shown = () => seriesOfSet().filter((one) => state.visible.has(keyOf(one)) || one === active());
const isSaved = () => state.wish.kind === "saved";

function keptOf(series) {
  return isSaved() && series === active() ? series.saved : keptAt(series, state.wish);
}

function wanted() {
  const { kind, step } = state.wish;
  if (kind === "saved") return "at the saved threshold";
  return kind === "risk" ? `at a risk of at most ${percent(step / PAGE.steps, 1)}` : `at ${percent(step / PAGE.steps, 1)} coverage`;
}

function startingPoint() {
  const first = PAGE.runs.find((run) => run.threshold && savedSeries(run)) ?? PAGE.runs[PAGE.runs.length - 1];
  state.run = first.number;
  state.set = Object.keys(first.sets)[0];
  state.score = first.default;
  for (const run of PAGE.runs) {
    for (const name of [run.default, run.own, "softmax"]) state.visible.add(`${run.number}/${name}`);
  }
  if (savedSeries(first)) goToSaved(first);
}

function savedSeries(run, setName) {
  const set = run.sets[setName ?? Object.keys(run.sets)[0]];
  const series = set && run.threshold ? set.scores[run.threshold.score] : null;
  return series && series.saved !== null ? series : null;
}

function goToSaved(run) {
  const series = savedSeries(run, state.set);
  state.run = run.number;
  state.score = series.name;
  state.wish = { kind: "saved", share: series.saved / series.n };
}

// Controls -----------------------------------------------------------------------------------

function choose(name, options, value, change) {
  const list = h("select", { id: `choose-${name}`, onchange: (event) => change(event.target.value) },
    options.map(([one, text]) => h("option", { value: one, selected: String(one) === String(value) }, text)));
  return h("label", { for: `choose-${name}` }, { run: "Run", set: "Test set", score: "Score" }[name], list);
}

function drawChoices() {
  const here = PAGE.runs.filter((run) => run.sets[state.set]);
  const sets = [...new Set(PAGE.runs.flatMap((run) => Object.keys(run.sets)))];
  put("choices",
    choose("run", here.map((run) => [run.number, run.name]), state.run, (value) => select({ run: Number(value) })),
    choose("set", sets.map((set) => [set, set]), state.set, (value) => select({ set: value })),
    choose("score", Object.keys(PAGE.runs[state.run].sets[state.set].scores).map((one) => [one, scoreTitle(one)]), state.score, (value) => select({ score: value })));
}

function scoreTitle(name) {
  const run = PAGE.runs[state.run];
  const marks = [name === run.default ? "default" : "", name === run.own ? "the method's own" : ""].filter(Boolean);
  return marks.length ? `${name} (${marks.join(", ")})` : name;
}

function select(change) {
  const focused = document.activeElement?.id;
  const before = isSaved() ? keptOf(active()) / active().n : null;
  Object.assign(state, change);
  if (!PAGE.runs[state.run].sets[state.set]) state.run = PAGE.runs.findIndex((run) => run.sets[state.set]);
  const run = PAGE.runs[state.run];
  if (!run.sets[state.set].scores[state.score]) state.score = run.default;
  if (before !== null) {
    // A threshold belongs to one run and one score; elsewhere the same share is looked at.
    if (active().saved !== null) goToSaved(run);
    else state.wish = { kind: "coverage", step: Math.max(1, Math.round(before * PAGE.steps)) };
  }
  drawAll();
  if (focused) byId(focused)?.focus();
}

function drawControl() {
  const risk = state.wish.kind === "risk";
  const largest = risk ? mostRisk() : PAGE.steps;
  const radio = (kind, text) => h("label", {}, h("input", { type: "radio", name: "kind", id: `by-${kind}`, value: kind,
    checked: (kind === "risk") === risk, onchange: () => switchKind(kind) }), ` ${text}`);
  const slider = h("input", { type: "range", id: "slider", min: risk ? 0 : 1, max: largest, step: 1, oninput: (event) => move(Number(event.target.value)),
    "aria-label": risk ? "Largest risk among the answers" : "Coverage: share of inputs answered" });
  const exact = h("input", { type: "number", id: "exact", min: risk ? 0 : 0.1, max: largest / 10, step: 0.1, "aria-label": risk ? "Risk in per cent" : "Coverage in per cent",
    onchange: (event) => move(Math.round(Number(event.target.value) * 10)) });
  put("control",
    h("div", { class: "row" },
      h("fieldset", {}, h("legend", {}, "Slide over"), radio("coverage", "coverage"), radio("risk", "risk")),
      h("span", { class: "exact" }, exact, "%")),
    slider, h("p", { class: "status", id: "status", role: "status", "aria-live": "polite" }));
}

// Beyond the error rate of everything, every risk accepts everything.
function mostRisk() {
  const rates = seriesOfSet().map((one) => one.errors[one.n] / one.n);
  return Math.min(PAGE.risk_steps, Math.ceil(Math.max(...rates) * PAGE.steps) + 1);
}

function switchKind(kind) {
  const now = summary(active(), keptOf(active()));
  if (kind === "risk") state.wish = { kind, step: Math.min(mostRisk(), Math.max(0, Math.round((now.risk || 0) * PAGE.steps))) };
  else state.wish = { kind, step: Math.max(1, Math.round(now.coverage * PAGE.steps)) };
  drawControl();
  byId(`by-${kind}`).focus();
  told();
}

function move(step) {
  const risk = state.wish.kind === "risk";
  const largest = risk ? mostRisk() : PAGE.steps;
  if (!Number.isFinite(step)) return;
  state.wish = { kind: risk ? "risk" : "coverage", step: Math.min(largest, Math.max(risk ? 0 : 1, step)) };
  told();
}

let asked = 0;
function told() {
  cancelAnimationFrame(asked);
  asked = requestAnimationFrame(() => live.forEach((one) => one()));
}

function drawStatus() {
  const series = active();
  const now = summary(series, keptOf(series));
  const slider = byId("slider");
  slider.value = state.wish.kind === "saved" ? Math.round(now.coverage * PAGE.steps) : state.wish.step;
  byId("exact").value = (Number(slider.value) / 10).toFixed(1);
  const answered = now.kept
    ? `${whole(now.kept)} of ${whole(series.n)} answered (${percent(now.coverage, 1)}), ${percent(now.risk)} of the answers wrong.`
    : "No threshold keeps the risk that low on these examples: nothing is answered.";
  const text = `${label(series)} on ${series.set.name}, ${wanted()}: ${answered}`;
  slider.setAttribute("aria-valuetext", `${wanted().replace(/^at (a )?/, "")}: ${answered}`);
  byId("status").textContent = text;
}

// The curves ---------------------------------------------------------------------------------

function drawChart() {
  const lines = shown();
  const points = lines.map((one) => one.curve.kept.map((kept, i) => [kept / one.n, one.curve.risk[i]]));
  // The first few examples may all be wrong; the picture is for the rest.
  const high = Math.max(0.02, ...lines.flatMap((one, i) => points[i].filter(([c]) => c >= 0.05).map(([, risk]) => risk)), ...lines.map((one) => one.errors[one.n] / one.n)) * 1.06;
  const marks = new Map();
  const plot = chart({
    label: `Risk against coverage on ${state.set}; the table below has the numbers at the chosen point.`,
    x: { range: [0, 1], label: "coverage: inputs answered, %", unit: "%" },
    y: { range: [0, high], unit: "%" }, grab: true,
    paint(svg, x, y, frame) {
      const clip = `clip-${state.set.length}-${frame.width}`;
      svg.append(s("clipPath", { id: clip }, s("rect", { x: frame.left, y: frame.top, width: frame.right - frame.left, height: frame.bottom - frame.top })));
      const inner = s("g", { "clip-path": `url(#${clip})` });
      svg.append(inner);
      const mine = active();
      paintBand(inner, mine.set.risk_grid, mine.risk_band, x, y, look(mine), high);
      lines.forEach((one, i) => { if (one !== mine) paintLine(inner, points[i], x, y, look(one), false); });
      paintLine(inner, points[lines.indexOf(mine)], x, y, look(mine), true);
      marks.clear();
      marks.set("cut", paintCut(svg, 0, x, frame));
      for (const one of lines) {
        const dot = s("circle", { class: `dot f ${look(one)}`, r: one === mine ? 6 : 4 });
        svg.append(dot);
        marks.set(one, dot);
      }
      Object.assign(marks, { x, y });
    },
    after(svg, x) {
      const toStep = (event) => {
        const box = svg.getBoundingClientRect();
        const share = (event.clientX - box.left - x(0)) / (x(1) - x(0));
        if (state.wish.kind === "risk") { state.wish = { kind: "coverage", step: 1 }; drawControl(); }
        move(Math.round(share * PAGE.steps));
      };
      svg.addEventListener("pointerdown", (event) => { svg.setPointerCapture(event.pointerId); toStep(event); });
      svg.addEventListener("pointermove", (event) => { if (event.buttons) toStep(event); });
      moveMarks();
    },
  });
  function moveMarks() {
    if (!marks.x) return;
    for (const one of lines) {
      const now = summary(one, keptOf(one));
      const dot = marks.get(one);
      dot.toggleAttribute("hidden", !now.kept);
      dot.style.display = now.kept ? "" : "none";
      if (!now.kept) continue;
      dot.setAttribute("cx", marks.x(now.coverage));
      dot.setAttribute("cy", marks.y(Math.min(now.risk, high)));
    }
    const at = marks.x(summary(active(), keptOf(active())).coverage);
    marks.get("cut").setAttribute("x1", at);
    marks.get("cut").setAttribute("x2", at);
  }
  live.push(moveMarks);
  put("chart", framed("Risk against coverage", "Wrong answers among those given, %. Lower is better; drag to move the point.", plot,
    legend(lines.map((one) => [swatch(look(one)), label(one)]))));
}

// The chosen point ---------------------------------------------------------------------------

function drawPoint() {
  const series = active();
  const run = series.run;
  const now = summary(series, keptOf(series));
  const right = now.kept - now.errors;
  const parts = [["right", right, "answered, right"], ["wrong", now.errors, "answered, wrong"],
    ["wait-bad", now.rejectedErrors, "left to a person, would be wrong"], ["wait", now.rejected - now.rejectedErrors, "left to a person, would be right"]];
  const stack = h("div", { class: "stack", role: "img", "aria-label": parts.map(([, size, text]) => `${text}: ${count(size)}`).join(", ") },
    parts.map(([kind, size]) => { const bar = h("i", { class: kind }); bar.style.width = `${(100 * size) / series.n}%`; return bar; }));
  const cut = isSaved() ? run.threshold.threshold : thresholdAt(series, state.wish);
  const row = (name, id, value, text) => [h("dt", {}, name), h("dd", { id }, figure(value, text))];
  put("point",
    h("h3", {}, `${label(series)}, ${wanted()}`), stack,
    legend(parts.map(([kind, size, text]) => [key(kind), `${text}: ${count(size)}`])),
    h("dl", { class: "numbers" },
      row("accepted", "n-accepted", now.kept, whole(now.kept)),
      row("rejected", "n-rejected", now.rejected, whole(now.rejected)),
      row("coverage", "n-coverage", now.coverage, percent(now.coverage)),
      row("accuracy of the accepted", "n-accuracy", now.accuracy, percent(now.accuracy)),
      row("risk of the accepted", "n-risk", now.risk, percent(now.risk)),
      row("threshold on the score", "n-threshold", cut, cut === null ? DASH : short(cut))),
    now.edge.share ? h("p", { class: "small" }, `${whole(now.edge.to - now.edge.from)} examples share the score at the border; each counts in part. A threshold takes all of them or none.`) : null,
    promise(series, now), command(series));
}

function promise(series, now) {
  const saved = series.run.threshold;
  const own = savedSeries(series.run, state.set);
  if (isSaved()) {
    const sure = `${Number((100 * saved.confidence).toFixed(3))} %`;
    const text = saved.risk_bound === null
      ? `The threshold kept with the run, chosen for its coverage: ${percent(saved.coverage_interval[0], 1)} to ${percent(saved.coverage_interval[1], 1)} of inputs like the ${whole(saved.n)} calibration examples, with ${sure} confidence. It promises nothing about the risk.`
      : `Guaranteed here: at most ${percent(saved.risk_bound)} of the answers are wrong, with ${sure} confidence, for inputs drawn like the ${whole(saved.n)} calibration examples.`;
    const above = saved.risk_bound !== null && now.risk > saved.risk_bound
      ? ` That is above the bound: chance, with ${whole(now.kept)} answers, or this set is not like the calibration data.` : "";
    const seen = now.kept ? `On ${series.set.name}: ${percent(now.risk)} wrong, ${percent(now.coverage)} answered.${above}` : `On ${series.set.name} nothing is answered.`;
    return h("div", { class: `promise${saved.risk_bound === null ? "" : " held"}`, id: "promise" }, h("p", {}, text), h("p", {}, seen));
  }
  const way = own
    ? h("p", {}, h("button", { type: "button", id: "to-saved", onclick: () => { goToSaved(series.run); drawAll(); byId("promise").setAttribute("tabindex", "-1"); byId("promise").focus(); } }, "Go to the saved threshold"))
    : null;
  return h("div", { class: "promise", id: "promise" },
    h("p", {}, "No guarantee at this point. The slider shows what happened on this test set; a guarantee comes from revar select on calibration data, and holds at its own threshold only."), way);
}

const quoted = (text) => (/^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function commandText(series) {
  const run = quoted(series.run.path);
  if (isSaved()) return `revar predict ${run} INPUTS`;
  const share = String(state.wish.step / PAGE.steps);
  const what = state.wish.kind === "risk" ? `--max-risk ${share} --confidence 0.95` : `--coverage ${share}`;
  return `revar select ${run} --on CALIBRATION ${what} --score ${quoted(series.name)}`;
}

function command(series) {
  // An option is not torn apart at its dashes.
  const words = commandText(series).split(" ").flatMap((word, i) => [i ? " " : "", word.startsWith("--") ? h("span", { class: "whole" }, word) : word]);
  const code = h("code", { id: "command" }, words);
  const button = h("button", { type: "button", id: "copy", onclick: async () => {
    try { await navigator.clipboard.writeText(code.textContent); } catch {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } }, "Copy");
  const text = isSaved() ? "To use this threshold:" : state.wish.kind === "risk"
    ? "To find and keep a threshold for this risk, with a guarantee:" : "To keep a threshold for this coverage:";
  return h("div", {}, h("p", { class: "small" }, text), h("div", { class: "copy" }, code, button));
}
