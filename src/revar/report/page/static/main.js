// Everything together.

function drawLines() {
  // What follows the slider is made anew, so the old followers go.
  live.length = 0;
  drawChart();
  drawCompare();
  drawDetail();
  drawCurves();
  drawScores();
  live.push(drawStatus, drawPoint, drawCards);
  live.forEach((one) => one());
}

function drawAll() {
  drawChoices();
  drawControl();
  drawSide();
  drawLines();
  drawReliability();
  drawGallery();
}

function drawPlaces() {
  const places = [...document.querySelectorAll("main section")].filter((one) => !one.hidden);
  put("places", places.map((one) => h("a", { href: `#${one.id}` }, one.querySelector("h2").dataset.short ?? one.querySelector("h2").textContent)));
}

async function start() {
  const sets = new Set(PAGE.runs.flatMap((run) => Object.keys(run.sets)));
  byId("lead").textContent = `${PAGE.runs.map((run) => `${run.name} (${run.method})`).join(", ")}. Tested on ${[...sets].join(", ")}.`;
  byId("foot").textContent = `Written by revar ${PAGE.version}${PAGE.date ? ` on ${PAGE.date}` : ""}. This file holds everything it shows and asks no other for anything.`;
  await readSeries();
  startingPoint();
  drawTraining();
  drawShift();
  drawSuspects();
  drawFacts();
  drawAll();
  drawPlaces();
  document.documentElement.dataset.ready = "yes";
}

if (typeof DecompressionStream === "undefined") {
  byId("trouble").hidden = false;
  byId("trouble").textContent = "This browser is too old to unpack the figures: use one from 2023 or later. The CSV file beside the page has them too.";
} else {
  start();
}
