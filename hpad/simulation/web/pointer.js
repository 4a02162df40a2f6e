// Where the pointer is on a chart, all charts of that HPA show the time, and their legends the values at it.
"use strict";

const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const BYTES = ["", "Ki", "Mi", "Gi", "Ti"];
const FIXED = ["goal", "bound"]; // looks of lines whose note says all
const read = new WeakMap();

// The corners of a path with the commands M, l, h and v, as runs between gaps.
function runsOf(path) {
  if (read.has(path)) return read.get(path);
  const runs = [];
  let x = 0;
  let y = 0;
  for (const [, command, text] of path.getAttribute("d").matchAll(/([Mlhv])([-\d ]*)/g)) {
    const numbers = (text.match(/-?\d+/g) ?? []).map(Number);
    if (command === "M") {
      [x, y] = numbers;
      runs.push([[x, y]]);
    } else if (command === "l") {
      for (let index = 0; index < numbers.length; index += 2) {
        x += numbers[index];
        y += numbers[index + 1];
        runs.at(-1).push([x, y]);
      }
    } else {
      if (command === "h") x += numbers[0];
      else y += numbers[0];
      runs.at(-1).push([x, y]);
    }
  }
  read.set(path, runs);
  return runs;
}

// The heights of the path at a place: one of a line, two of a band, which goes to its end and back; none in a gap.
function heightsAt(path, x) {
  for (const run of runsOf(path)) {
    const end = Math.max(...run.map((point) => point[0]));
    if (x < run[0][0] || x > end) continue;
    const isBand = path.getAttribute("d").endsWith("z");
    const turn = isBand ? run.findIndex((point) => point[0] === end) + 1 : run.length;
    const there = run.slice(0, turn);
    const back = run.slice(turn).reverse();
    const heights = [there, back].filter((side) => side.length).map((side) => (side.findLast((point) => point[0] <= x) ?? side[0])[1]);
    return [...new Set(heights)];
  }
  return [];
}

function digits(value) {
  return value.toLocaleString("en-US", { maximumFractionDigits: value >= 10 ? 0 : value >= 1 ? 1 : 2 });
}

function written(value, unit) {
  if (unit === "replicas") return Math.round(value).toLocaleString("en-US");
  if (unit === "%") return `${digits(value)}\u00a0%`;
  if (unit === "cores" && value < 1) return `${digits(value * 1000)}m`;
  if (unit !== "bytes") return digits(value);
  const power = Math.min(BYTES.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
  return digits(value / 1024 ** power) + BYTES[power];
}

// A path has whole numbers: it cannot tell more counts than its height.
function near(value, unit, coarse) {
  return unit === "replicas" && coarse ? `about ${written(Number(value.toPrecision(2)), unit)}` : written(value, unit);
}

function show(figure, share) {
  const area = figure.querySelector(".area");
  const { begin, end, low, high, unit } = area.dataset;
  let cursor = figure.querySelector(".cursor");
  if (!cursor) {
    cursor = document.createElement("div");
    cursor.className = "cursor";
    cursor.append(document.createElement("span"));
    figure.querySelector(".plot").append(cursor);
    for (const note of figure.querySelectorAll(".legend li")) note.style.minWidth = `${Math.ceil(note.getBoundingClientRect().width)}px`;
  }
  const at = new Date((Number(begin) + share * (end - begin)) * 1000);
  cursor.firstChild.textContent = `${DAYS[at.getUTCDay()]} ${at.getUTCDate()} ${at.toISOString().slice(11, 16)}`;
  cursor.classList.toggle("left", share > 0.5);
  cursor.style.left = `${area.getBoundingClientRect().left - area.parentElement.getBoundingClientRect().left + share * area.getBoundingClientRect().width}px`;
  const { width, height } = area.viewBox.baseVal;
  for (const entry of figure.querySelectorAll(".legend li")) {
    const look = entry.querySelector("path").getAttribute("class");
    const path = [...area.querySelectorAll(`[class="${look}"]`)];
    const note = entry.querySelector("i");
    if (path.length !== 1 || !note || FIXED.includes(look)) continue;
    note.dataset.range ??= note.textContent;
    const heights = heightsAt(path[0], share * width).sort((one, other) => other - one);
    const values = heights.map((y) => Number(high) - (y / height) * (high - low));
    note.textContent = values.map((value) => near(value, unit, high - low > height)).join(" to ") || "not known";
  }
}

function clear(charts) {
  charts.querySelectorAll(".cursor").forEach((each) => each.remove());
  charts.querySelectorAll("[data-range]").forEach((note) => { note.textContent = note.dataset.range; });
  charts.querySelectorAll(".legend li").forEach((note) => { note.style.minWidth = ""; });
}

document.addEventListener("pointermove", (event) => {
  const area = event.target.closest?.(".area");
  if (!area) return;
  const box = area.getBoundingClientRect();
  const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  for (const figure of area.closest(".charts").querySelectorAll(".chart")) show(figure, share);
});
document.addEventListener("pointerout", (event) => {
  const charts = event.target.closest?.(".area")?.closest(".charts");
  if (charts && !event.relatedTarget?.closest?.(".area")) clear(charts);
});
