// Tables that follow the slider: made once for a choice, then only their numbers change.

function liveTable(caption, head, rows, options) {
  const cells = rows.map(() => head.slice(1).map(() => h("span")));
  const whole = table(caption, head, rows.map((first, i) => ({ cells: [first.cell, ...cells[i]], chosen: first.chosen })), options);
  return { whole, set(i, values) { values.forEach((value, j) => cells[i][j].replaceChildren(...[value].flat())); } };
}

function drawCompare() {
  const all = seriesOfSet();
  const rows = all.map((one) => {
    const id = keyOf(one);
    const show = h("input", { type: "checkbox", id: `show-${id}`, "aria-label": `Show the curve of ${label(one)}`, checked: state.visible.has(id) || one === active(), disabled: one === active(),
      onchange: (event) => { if (event.target.checked) state.visible.add(id); else state.visible.delete(id); drawLines(); } });
    const pick = h("input", { type: "radio", name: "inspect", id: `inspect-${id}`, checked: one === active(), onchange: () => select({ run: one.run.number, score: one.name }) });
    const marks = `${one.name === one.run.default ? " *" : ""}${one.name === one.run.own ? " +" : ""}`;
    return { cell: [show, " ", h("label", { title: PAGE.summaries[one.name] ?? "" }, pick, " ", swatch(look(one)), ` ${label(one)}${marks}`)], chosen: one === active() };
  });
  const caption = [h("span", {}, "All scores and methods at this point"),
    h("span", { class: "small" }, "Tick to draw a curve, choose one to inspect. * used unless told otherwise, + published with the method.")];
  const made = liveTable(caption, ["run and score", "accepted", "coverage", "accuracy", "risk", "wrong", "threshold", "AUARC"], rows, { look: "compare", name: "All scores and methods at this point" });
  const follow = () => all.forEach((one, i) => {
    const now = summary(one, keptOf(one));
    const own = isSaved() && one === active() ? one.run.threshold.threshold : thresholdAt(one, state.wish);
    made.set(i, [figure(now.kept, whole(now.kept)), percent(now.coverage, 1), figure(now.accuracy, percent(now.accuracy)), figure(now.risk, percent(now.risk)), count(now.errors),
      own === null ? DASH : short(own), percent(one.set.figures.scores[one.name].auarc)]);
  });
  live.push(follow);
  put("compare", h("div", { class: "block" }, made.whole));
}

function shareRow(all, taken, right) {
  const share = all ? taken / all : NaN;
  const accuracy = taken ? right / taken : NaN;
  return [whole(all), count(taken), [meter(share), figure(share, percent(share, 1))], figure(accuracy, percent(accuracy, 1))];
}

const MANY = 100;
const SHARES = ["examples", "accepted", "share accepted", "accuracy of accepted"];

function drawDetail() {
  const series = active();
  const names = series.run.classes;
  const classes = liveTable("By true class", ["class", ...SHARES], names.map((cell) => ({ cell })));
  put("classes", h("div", { class: "block" }, classes.whole));
  const { groups, group_name: what, group_note: why } = series.set;
  const byGroup = groups ? liveTable(`By ${what || "group"}`, [what || "group", ...SHARES], groups.map((cell) => ({ cell }))) : null;
  put("groups", byGroup ? h("div", { class: "block" }, byGroup.whole) : why ? h("p", { class: "small" }, why) : null);
  const matrix = names.length <= 16 ? liveMatrix(names) : null;
  if (matrix) put("confusion", h("div", { class: "block" }, matrix.whole));
  const follow = () => {
    const found = detail(series, keptOf(series));
    names.forEach((_, i) => classes.set(i, shareRow(found.all[i], found.taken[i], found.right[i])));
    groups?.forEach((_, i) => byGroup.set(i, shareRow(found.groupAll[i], found.groupTaken[i], found.groupRight[i])));
    if (matrix) matrix.set(found);
    else put("confusion", h("div", { class: "block" }, commonest(found, names)));
  };
  // A thousand rows are too slow for every move; they follow when the slider rests.
  let waiting = 0;
  const later = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { if (series === active()) follow(); }, 120);
  };
  follow();
  live.push(names.length > MANY ? later : follow);
}

function liveMatrix(names) {
  const cells = names.map(() => names.map(() => h("td")));
  const whole_ = h("table", { class: "matrix" },
    h("caption", { class: "unseen" }, "Confusion matrix of the accepted"),
    h("thead", {}, h("tr", {}, h("td", {}), names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, names.map((name, i) => h("tr", {}, h("th", { scope: "row" }, name), cells[i]))));
  const set = (found) => {
    const n = names.length;
    const misses = Math.max(1, ...[...found.pairs].filter(([pair]) => Math.floor(pair / n) !== pair % n).map(([, size]) => size));
    cells.forEach((row, i) => row.forEach((cell, j) => {
      const size = found.pairs.get(i * n + j) ?? 0;
      cell.textContent = count(size);
      cell.className = size === 0 ? "zero" : i === j ? "hit" : "miss";
      cell.style.setProperty("--heat", i === j ? size / Math.max(1, found.all[i]) : 0.25 + 0.75 * (size / misses));
    }));
  };
  const heading = [h("span", {}, "Confusion matrix of the accepted"), h("span", { class: "small" }, "Rows are true classes, columns the answers.")];
  return { whole: boxed(whole_, "Confusion matrix of the accepted", heading), set };
}

function commonest(found, names) {
  const n = names.length;
  const worst = [...found.pairs].filter(([pair]) => Math.floor(pair / n) !== pair % n).sort((a, b) => b[1] - a[1]).slice(0, 20);
  return table("Commonest mistakes among the accepted", ["true class", "answer", "accepted"],
    worst.map(([pair, size]) => ({ cells: [names[Math.floor(pair / n)], names[pair % n], count(size)] })));
}

// The overview -------------------------------------------------------------------------------

function drawCards() {
  const series = active();
  const { figures } = series.set;
  const now = summary(series, keptOf(series));
  const saved = series.run.threshold;
  const card = (title, value, text, word) => h("div", { class: "card" }, h("h3", {}, title), h("span", { class: `big${word ? " word" : ""}` }, value), h("p", {}, text));
  const guaranteed = isSaved() && saved.risk_bound !== null;
  put("cards",
    card("Accuracy, answering all", figure(figures.accuracy, percent(figures.accuracy, 1)), `${whole(series.n)} examples of ${series.set.name}`),
    card("Coverage", figure(now.coverage, percent(now.coverage, 1)), `${whole(now.kept)} answered, ${whole(now.rejected)} left to a person`),
    card("Selective risk", figure(now.risk, percent(now.risk)), `of the answers wrong; ${percent(1 - figures.accuracy)} if all were answered`),
    card("Guarantee", guaranteed ? `≤ ${percent(saved.risk_bound, 1)}` : "none here", guaranteed ? `with ${Number((100 * saved.confidence).toFixed(3))} % confidence, for inputs like the calibration data`
      : saved && saved.risk_bound !== null ? "one is saved, at its own threshold only" : "none was asked for", !guaranteed),
    card("Calibration error", figure(figures.ece, percent(figures.ece)), "ECE of the softmax, 15 bins; 0 is perfect"));
}

function drawSide() {
  put("notes", PAGE.notes.map((text) => h("p", { class: "notice" }, text)));
  const here = PAGE.runs.filter((run) => run.sets[state.set]);
  const at = String(WATCHED / 100);
  const rows = here.map((run) => {
    const { figures } = run.sets[state.set];
    const score = figures.scores[run.default];
    return { chosen: run.number === state.run, cells: [run.name, run.method, whole(figures.n), percent(figures.accuracy), percent(figures.ece), run.default, percent(score.auarc),
      percent(score.failure_auroc), percent(score.accuracy_at_coverage["0.8"]), percent(score.coverage_at_risk[at])] };
  });
  put("side", here.length > 1 ? h("div", { class: "block" }, table(`Runs side by side on ${state.set}, by their default score`,
    ["run", "method", "examples", "accuracy", "ECE", "score", "AUARC", "failure AUROC", "accuracy at 80 % coverage", `coverage at ${WATCHED} % risk`], rows)) : null);
}
