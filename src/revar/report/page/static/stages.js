// Training and shift.

function drawTraining() {
  const logged = PAGE.runs.filter((run) => run.log.length);
  byId("training").hidden = !logged.length;
  const curve = (title, sub, name, unit) => {
    const lines = logged.map((run) => ({ name: run.name, look: runLook(run), points: run.log.filter((one) => known(one[name])).map((one) => [one.epoch, one[name]]) })).filter((line) => line.points.length > 1);
    if (!lines.length) return null;
    const all = lines.flatMap((line) => line.points.map(([, value]) => value));
    const last = Math.max(...lines.flatMap((line) => line.points.map(([epoch]) => epoch)));
    return lineChart({ title, sub, lines, x: { range: [1, last], label: "epoch" }, y: { range: [Math.min(0, ...all), Math.max(...all) * 1.05 || 1], unit }, height: 230,
      table: behind(title, ["run", "first epoch", "last epoch", "lowest", "highest"], lines.map((line) => {
        const values = line.points.map(([, value]) => value);
        return [line.name, short(values[0]), short(values[values.length - 1]), short(Math.min(...values)), short(Math.max(...values))];
      })) });
  };
  put("training-curves", curve("Training loss", "Mean over each epoch.", "loss"), curve("Meta-loss", "On the meta split, which teaches the U-Score.", "meta_loss"),
    curve("Spread of the weights", "Standard deviation of the training weights, whose mean is near one.", "weight_spread"), curve("Training accuracy", "On the labels given, wrong ones too, %.", "accuracy", "%"));
}

function drawShift() {
  const sets = [...new Set(PAGE.runs.flatMap((run) => Object.keys(run.sets)))];
  const several = PAGE.runs.some((run) => Object.keys(run.sets).length > 1);
  byId("shift").hidden = !several;
  if (!several) return;
  const defaults = (set) => PAGE.runs.filter((run) => run.sets[set]).map((run) => run.sets[set].scores[run.default]);
  const high = 1.06 * Math.max(0.02, ...sets.flatMap(defaults).flatMap((one) => one.curve.risk.filter((_, i) => one.curve.kept[i] / one.n >= 0.05)));
  put("shifts", sets.map((set) => lineChart({ title: set, sub: "Risk against coverage, %; one scale for all sets.", height: 250,
    lines: defaults(set).map((one) => ({ name: `${one.run.name} · ${one.name}`, look: runLook(one.run), grid: one.set.risk_grid, band: one.risk_band,
      points: one.curve.kept.map((kept, i) => [kept / one.n, Math.min(one.curve.risk[i], high)]) })),
    x: { range: [0, 1], label: "coverage, %", unit: "%" }, y: { range: [0, high], unit: "%" } })));
  const rows = sets.flatMap((set) => defaults(set).map((one) => {
    const { figures } = one.set;
    const score = figures.scores[one.name];
    const saved = savedSeries(one.run, set);
    const kept = saved ? summary(saved, saved.saved) : null;
    return { cells: [set, one.run.name, whole(figures.n), percent(figures.accuracy), percent(figures.ece), percent(score.auarc), percent(score.accuracy_at_coverage["0.8"]), percent(score.coverage_at_risk["0.05"]),
      kept ? percent(kept.coverage) : DASH, kept && kept.kept ? percent(kept.risk) : DASH] };
  }));
  put("shift-table", h("div", { class: "block" }, table("By test set", ["set", "run", "examples", "accuracy", "ECE", "AUARC", "accuracy at 80 % coverage", "coverage at 5 % risk", "answered at the saved threshold", "risk there"], rows)));
}
