// From the decision history of an HPA to what the chart draws.

const LINES = 6; // the number of line styles for metrics

const began = (entry) => Date.parse(entry.began);
const ended = (entry) => Date.parse(entry.ended);
const countOf = (entry) => entry.current === undefined ? "?" : count(entry.current);
const isRescale = (entry) => entry.action === "scale_up" || entry.action === "scale_down";

// Merges a newer list of entries into a known one, both the newest first; the newest stretch grows.
function mergeEntries(known, newer) {
  if (!newer.length) return known;
  const oldest = began(newer.at(-1));
  return [...newer, ...known.filter((entry) => began(entry) < oldest)];
}

// Returns the lines of a history, given the newest entry first, from the time `from` on.
//
// `replicas`, `shadow`, `max` and `min` and those of `metrics` are lists of [time, count]; a count holds until the next time, and null
// is a gap: nothing was decided, or the metric proposed nothing. `until` is when the last entry ended.
function seriesOf(entries, from) {
  const seen = entries.filter((entry) => ended(entry) >= from).toReversed();
  const pause = longestPause(seen);
  const lines = { replicas: [], shadow: [], min: [], max: [], metrics: new Map(), entries: seen, until: from };
  for (const address of new Set(seen.flatMap((entry) => entry.metrics ?? []))) lines.metrics.set(address, []);
  let before = null;
  for (const entry of seen) {
    if (before !== null && began(entry) - before > pause) gap(lines, before);
    const start = Math.max(began(entry), from);
    push(lines.replicas, start, entry.target ?? entry.current ?? null);
    push(lines.shadow, start, entry.target === undefined ? null : (entry.current ?? null));
    push(lines.min, start, entry.min);
    push(lines.max, start, entry.max);
    pushProposals(lines.metrics, entry, from);
    before = ended(entry);
    lines.until = before;
  }
  return lines;
}

function pushProposals(metrics, entry, from) {
  for (const [address, line] of metrics) {
    const index = (entry.metrics ?? []).indexOf(address);
    for (const point of entry.points ?? []) {
      push(line, Math.max(Date.parse(point.time), from), index < 0 ? null : (point.proposals[index] ?? null));
    }
  }
}

// Adds a point; of several at one time the last one stays, and a count that repeats needs no point.
function push(line, time, number) {
  if (line.length && line.at(-1)[0] >= time) line.pop();
  if (!line.length || line.at(-1)[1] !== number) line.push([time, number]);
}

function gap(lines, time) {
  for (const line of [lines.replicas, lines.shadow, lines.min, lines.max, ...lines.metrics.values()]) push(line, time, null);
}

// The times, from and to, of failed decisions, given the oldest entry first; those that follow each other directly are one.
function failuresOf(entries) {
  const pause = longestPause(entries), spans = [];
  entries.forEach((entry, index) => {
    if (!entry.error) return;
    const before = entries[index - 1];
    if (before?.error && began(entry) - ended(before) <= pause) spans.at(-1)[1] = ended(entry);
    else spans.push([began(entry), ended(entry)]);
  });
  return spans;
}

// Milliseconds between two entries from which on there is a gap: some periods of the HPA, at least a minute.
function longestPause(entries) {
  const periods = entries
    .filter((entry) => entry.turns > 1)
    .map((entry) => (ended(entry) - began(entry)) / (entry.turns - 1))
    .sort((one, other) => one - other);
  const period = periods.length ? periods[Math.floor(periods.length / 2)] : 15 * SECOND;
  return Math.max(MINUTE, 4 * period);
}

// The entry in force at a time: the last that began before it. `entries` are the oldest first.
function entryAt(entries, time) {
  let low = 0;
  let high = entries.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (began(entries[middle]) <= time) low = middle + 1;
    else high = middle;
  }
  return entries[Math.max(0, low - 1)];
}

// Where the chart begins: at the start of the range, or where the first decision in it began, at least a minute ago.
function chartStart(entries, from, now = Date.now()) {
  const oldest = entries.findLast((entry) => ended(entry) >= from);
  if (!oldest) return Math.max(from, now - DAY);
  return Math.max(from, Math.min(began(oldest), now - MINUTE));
}

// The stretches of a line above `top`, as {from, to, peak}; the last one ends at `until`.
function stretchesAbove(line, top, until) {
  const found = [];
  line.forEach(([time, number], index) => {
    if (number === null || number <= top) return;
    const to = line[index + 1]?.[0] ?? until;
    const last = found.at(-1);
    if (last?.to === time) Object.assign(last, { to, peak: Math.max(last.peak, number) });
    else found.push({ from: time, to, peak: number });
  });
  return found;
}

// The value of a line at a time; null in a gap.
function valueAt(line, time) {
  let found = null;
  for (const [from, number] of line) {
    if (from > time) break;
    found = number;
  }
  return found;
}

// The highest count that the chart has room for: bounds far above what happens do not flatten the rest.
function topOf(lines) {
  const largest = (line) => line.reduce((most, [, number]) => Math.max(most, number ?? 0), 0);
  const most = largest(lines.max);
  const used = Math.max(1, largest(lines.replicas), largest(lines.shadow), largest(lines.min));
  const wanted = Math.max(0, ...[...lines.metrics.values()].map(largest));
  const seen = Math.max(used, Math.min(wanted, Math.max(used, most) * 1.5));
  return most > 3 * seen ? seen * 1.6 : Math.max(seen, most) * 1.08;
}

// About `wanted` round numbers from 0 to `top`, whole ones.
function countTicks(top, wanted = 4) {
  const size = Math.max(1, top / wanted);
  const power = 10 ** Math.floor(Math.log10(size));
  const every = Math.max(1, [1, 2, 5, 10].find((factor) => factor * power >= size) * power);
  return Array.from({ length: Math.floor(top / every) + 1 }, (_, index) => index * every);
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30].map((step) => step * MINUTE)
  .concat([1, 2, 3, 6, 12].map((step) => step * HOUR), [1, 2, 7, 14].map((step) => step * DAY));

// Round times of the reader's clock, at most `most` of them.
function timeTicks(from, to, most) {
  const every = TIME_STEPS.find((step) => (to - from) / step <= most) ?? 28 * DAY;
  const zone = new Date(from).getTimezoneOffset() * MINUTE;
  const ticks = [];
  for (let time = Math.ceil((from - zone) / every) * every + zone; time <= to; time += every) ticks.push(time);
  return ticks.map((time) => [time, every >= DAY || (every >= HOUR && clock(time, false) === "00:00") ? days.format(new Date(time)) : clock(time, false)]);
}
