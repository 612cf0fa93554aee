// Diagrams of the chosen set, of training, and of shift.

const EVERY = [0.5, 0.6, 0.7, 0.8, 0.9, 1];

function lineChart(options) {
  const { title, sub, lines, x, y } = options;
  const plot = chart({ label: `${title}.`, x, y, height: options.height,
    paint(svg, px, py, frame) {
      for (const line of lines) if (line.band) paintBand(svg, line.grid, line.band, px, py, line.look, y.range[1]);
      for (const line of lines) paintLine(svg, line.points, px, py, line.look, line.strong);
      if (options.cut) options.cut.line = paintCut(svg, 0, px, frame);
      if (options.cut) options.cut.x = px;
    },
    after() { options.cut?.follow(); } });
  return framed(title, sub, plot, legend(lines.map((line) => [swatch(line.look), line.name])), options.table);
}

// A dotted line that follows the chosen point.
function follower(place) {
  const cut = { line: null, x: null, follow() {
    if (!cut.line) return;
    const at = cut.x(place(summary(active(), keptOf(active())).coverage));
    cut.line.setAttribute("x1", at);
    cut.line.setAttribute("x2", at);
  } };
  live.push(cut.follow);
  return cut;
}

function drawCurves() {
  const lines = shown();
  const mine = active();
  const heads = ["score", ...EVERY.map((c) => `${100 * c} %`)];
  const rejection = lines.map((one) => ({
    name: label(one), look: look(one), strong: one === mine, grid: one === mine ? one.set.risk_grid.map((c) => 1 - c) : null,
    band: one === mine ? one.risk_band.map((end) => end.map((risk) => (risk === null ? null : 1 - risk))) : null,
    points: one.curve.kept.map((kept, i) => [1 - kept / one.n, 1 - one.curve.risk[i]]).filter(([rejected]) => rejected <= 0.98),
  }));
  const lowest = Math.min(...rejection.flatMap((line) => line.points.map(([, accuracy]) => accuracy)), ...mine.risk_band[1].map((risk) => 1 - risk));
  const sece = lines.map((one) => ({ name: label(one), look: look(one), strong: one === mine, grid: one.set.ece_grid, band: one === mine ? one.ece_band : null,
    points: one.set.ece_grid.map((c, i) => [c, one.ece[i]]) }));
  const worst = Math.max(0.01, ...sece.flatMap((line) => line.points.map(([, error]) => error)), ...mine.ece_band[1].filter(known));
  put("curves",
    lineChart({ title: "Accuracy against rejection", sub: "Right answers among those given, %, when the most uncertain are left out.", lines: rejection, cut: follower((c) => 1 - c),
      x: { range: [0, 1], label: "inputs rejected, %", unit: "%" }, y: { range: [Math.max(0, lowest - 0.01), 1], unit: "%" },
      table: behind("Accuracy at coverage", heads, lines.map((one) => [label(one), ...EVERY.map((c) => percent(one.set.figures.scores[one.name].accuracy_at_coverage[c.toFixed(1)]))])) }),
    lineChart({ title: "Selective calibration error", sub: "ECE of the probabilities that go with the score, among the answers given, %. Lower is better.", lines: sece, cut: follower((c) => c),
      x: { range: [0, 1], label: "coverage: inputs answered, %", unit: "%" }, y: { range: [0, worst * 1.06], unit: "%" },
      table: behind("Selective ECE", heads, lines.map((one) => [label(one), ...EVERY.map((c) => percent(one.set.figures.scores[one.name].selective_ece[c.toFixed(1)]))])) }));
}

function drawReliability() {
  const here = PAGE.runs.filter((run) => run.sets[state.set]);
  put("reliability", here.map((run) => {
    const { reliability: bins, figures } = run.sets[state.set];
    const total = bins.weight.reduce((sum, one) => sum + one, 0);
    const plot = chart({ label: `Reliability of ${run.name} on ${state.set}: accuracy against confidence in 15 bins.`, x: { range: [0, 1], label: "confidence, %", unit: "%" }, y: { range: [0, 1], unit: "%" },
      paint(svg, x, y) {
        bins.weight.forEach((weight, i) => {
          if (weight) svg.append(s("rect", { class: "quiet", x: x(bins.edges[i]) + 1, width: Math.max(1, x(bins.edges[i + 1]) - x(bins.edges[i]) - 2), y: y(weight / total), height: y(0) - y(weight / total) }));
        });
        svg.append(s("path", { class: "ideal", d: path([[0, 0], [1, 1]], x, y) }));
        bins.accuracy.forEach((accuracy, i) => {
          if (!known(accuracy)) return;
          const at = x(bins.confidence[i]);
          const [low, high] = [bins.band[0][i], bins.band[1][i]];
          if (known(low)) svg.append(s("line", { class: `whisker s ${runLook(run)}`, x1: at, x2: at, y1: y(low), y2: y(high) }));
          svg.append(s("circle", { class: `dot f ${runLook(run)}`, cx: at, cy: y(accuracy), r: 5 }));
        });
      } });
    const rows = bins.weight.map((weight, i) => [`${percent(bins.edges[i], 1)} to ${percent(bins.edges[i + 1], 1)}`, whole(weight), percent(bins.confidence[i], 1), percent(bins.accuracy[i], 1)]).filter((row) => row[1] !== "0");
    return framed(`Reliability: ${run.name}`, `Share that is right among answers of one confidence; on the dashed line it is what it says. Grey: share of the answers. ECE ${percent(figures.ece)}.`, plot, null,
      behind(`Reliability of ${run.name}`, ["confidence", "examples", "mean confidence", "accuracy"], rows));
  }));
}

// Scores -------------------------------------------------------------------------------------

function histogram(series) {
  const bins = series.histogram;
  if (!bins) return null;
  const sums = [bins.right, bins.wrong].map((one) => Math.max(1, one.reduce((a, b) => a + b, 0)));
  const shares = [bins.right.map((v) => v / sums[0]), bins.wrong.map((v) => v / sums[1])];
  const [low, high] = [bins.edges[0], bins.edges[bins.edges.length - 1]];
  let cut = null;
  let place = null;
  const follow = () => {
    if (!cut) return;
    const at = series !== active() ? null : isSaved() ? series.run.threshold.threshold : thresholdAt(series, state.wish);
    cut.style.display = known(at) ? "" : "none";
    if (!known(at)) return;
    const px = place(Math.min(high, Math.max(low, at)));
    cut.setAttribute("x1", px);
    cut.setAttribute("x2", px);
  };
  const plot = chart({ label: `Histogram of ${label(series)} for right and wrong answers.`, x: { range: [low, high], label: `${series.name}: higher is less certain` }, y: { range: [0, Math.max(...shares.flat()) * 1.06], unit: "%" },
    paint(svg, x, y, frame) {
      shares.forEach((values, which) => values.forEach((value, i) => {
        if (value) svg.append(s("rect", { class: `half ${which ? "wrong" : "right"}`, x: x(bins.edges[i]), width: Math.max(1, x(bins.edges[i + 1]) - x(bins.edges[i]) - 0.5), y: y(value), height: y(0) - y(value) }));
      }));
      cut = paintCut(svg, low, x, frame);
      place = x;
    }, after: follow });
  live.push(follow);
  const auroc = series.set.figures.scores[series.name].failure_auroc;
  return framed(`${series.name === "uscore" ? "U-Score" : series.name}: ${series.run.name}`, `Share of right and of wrong answers, % each. Failure AUROC ${percent(auroc, 1)}: 100 % tells all errors from hits, 50 % is chance.`,
    plot, legend([[key("right"), `right (${whole(sums[0])})`], [key("wrong"), `wrong (${whole(sums[1])})`]]),
    behind("Histogram", ["from", "to", "right", "wrong"], bins.right.map((v, i) => [short(bins.edges[i]), short(bins.edges[i + 1]), whole(v), whole(bins.wrong[i])]).filter((row) => row[2] !== "0" || row[3] !== "0")));
}

function cloud(run) {
  const set = run.sets[state.set];
  const points = set.cloud;
  if (!points) return null;
  const there = points.uscore.map((u, i) => [points.entropy[i], u, points.right[i]]).filter(([a, b]) => known(a) && known(b));
  const span = (column) => [Math.min(...there.map((p) => p[column])), Math.max(...there.map((p) => p[column]))];
  const figures = set.figures.scores.uscore;
  const plot = chart({ label: `U-Score against entropy of the softmax, ${run.name}.`, x: { range: [0, Math.max(0.01, span(0)[1])], label: "entropy of the softmax, nats" }, y: { range: span(1) },
    paint(svg, x, y) {
      for (const [a, b, right] of there) {
        const [px, py] = [x(a), y(b)];
        svg.append(right ? s("circle", { class: "rightline half", cx: px, cy: py, r: 2.6 }) : s("path", { class: "wrongline", d: `M${px - 3} ${py - 3}l6 6m0 -6l-6 6` }));
      }
    } });
  const some = there.length < points.of ? `${whole(there.length)} of ${whole(points.of)} examples, drawn at random. ` : "";
  const word = (value) => (known(value) ? value.toFixed(3) : DASH);
  return framed(`U-Score against entropy: ${run.name}`, `${some}Pearson ${word(figures.entropy_pearson)}, Spearman ${word(figures.entropy_spearman)}. The U-Score is the logit of g.`,
    plot, legend([[s("svg", { class: "swatch", viewBox: "0 0 26 10", "aria-hidden": "true" }, s("circle", { class: "rightline", cx: 13, cy: 5, r: 3 })), "right"],
      [s("svg", { class: "swatch", viewBox: "0 0 26 10", "aria-hidden": "true" }, s("path", { class: "wrongline", d: "M10 2l6 6m0 -6l-6 6" })), "wrong"]]));
}

function drawScores() {
  const here = PAGE.runs.filter((run) => run.sets[state.set]);
  const learned = here.map((run) => run.sets[state.set].scores.uscore).filter((one) => one && one !== active());
  put("histograms", histogram(active()), learned.map(histogram), here.map(cloud));
}
