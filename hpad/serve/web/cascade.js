// A decision as a cascade: samples, proposals, the chosen one, what held it, what was written.

// One step: its name, the count after it (undefined: none yet), and what happened.
function step(name, number, changed, ...content) {
  return h(
    "li.step",
    { "data-key": name, class: changed ? "changed" : null },
    h("div.rail", {}, number === undefined || number === null
      ? h("i", {})
      : h("b.after", {}, count(number), h("span.hidden", {}, number === 1 ? " replica" : " replicas"))),
    h("div.what", {}, h("h3", {}, name), content),
  );
}

const clause = (...parts) => h("p", {}, parts);
const strong = (text) => h("b.number", {}, text);
const at = (time) => h("time", { datetime: time, title: time }, moment(Date.parse(time)));

// The usage as the metric target counts it: "61%", "13.8", "1.2Gi".
function usageText({ usage, sample, unit }) {
  if (usage?.percent !== undefined) return `${usage.percent}%`;
  return quantity(usage?.value ?? usage?.total ?? sample?.value, unit) || "–";
}

function targetText({ target, unit }) {
  if (!target) return "";
  if (target.type === "Utilization") return `${target.amount}%`;
  return `${quantity(target.amount, unit)}${target.type === "AverageValue" ? " per replica" : ""}`;
}

function samplesStep(trace, sourceStates) {
  if (!trace.metrics?.length) return null;
  return step("Samples", null, false, h("ul.samples", {}, trace.metrics.map((metric) => {
    const { usage, unit } = metric;
    const total = usage?.total !== undefined && usage.value !== undefined && `${quantity(usage.total, unit)} in total`;
    const from = [metric.type, sourceLink(metric.source, sourceStates)];
    const age = metric.sample && `${seconds(Math.max(0, Math.round(metric.sample.ageSeconds)))} old`;
    return h("li", { "data-key": metric.address },
      h("b.name", {}, metric.address),
      h("span.reading", {},
        metric.error && !usage ? h("span.bad", {}, icon("failing"), "no value") : h("b", {}, usageText(metric)),
        h("span.quiet", {}, ` / ${targetText(metric)}`)),
      h("span.from", {}, from[0], h("span", {}, " from ", from[1]), total && h("span", {}, total), age && h("span", {}, age)));
  })));
}

function sourceLink(name, states = {}) {
  if (!name) return "no source";
  const state = states[name];
  return h("a", { href: "#/sources" }, name, state && state !== "ok" && state !== "idle" && ` (${state})`);
}

function calculation(metric, current) {
  const { usage, tolerance } = metric;
  const parts = [];
  if (usage?.ratio !== undefined) {
    parts.push(`usage ÷ target = ${short(usage.ratio)}`);
    if (usage.cautiousRatio !== undefined && usage.cautiousRatio !== usage.ratio) {
      parts.push(`${short(usage.cautiousRatio)} with all pods counted`);
    }
    if (usage.pods !== undefined) parts.push(plural(usage.pods, "pod"));
  }
  if (tolerance?.within) parts.push(`within the tolerance of ${toleranceText(tolerance)}, so the count stays ${count(current)}`);
  return parts.join(", ");
}

function toleranceText({ down, up }) {
  const percent = (part) => `${short(part * 100)}%`;
  return down === up ? `±${percent(up)}` : `−${percent(down)}, +${percent(up)}`;
}

function proposalsStep(trace) {
  if (!trace.metrics?.length) return null;
  const most = Math.max(trace.replicas.max, ...trace.metrics.map((metric) => metric.proposal ?? 0), 1);
  const lines = trace.metrics.map((metric, index) => {
    const chosen = trace.chosen?.metric === metric.address;
    return h("li.proposal", { "data-key": metric.address, class: chosen ? "chosen" : null },
      h("div.line", {}, h("span.name", {}, metric.address), h("b.number", {}, metric.proposal ?? "none")),
      h("div.bar", { "aria-hidden": "true" },
        h("i", { style: { "--part": `${(100 * (metric.proposal ?? 0)) / most}%`, "--color": `var(--line-${index % LINES})` } })),
      metric.error && h("div.bad", {}, icon("failing"), h("div", {}, folded(metric.error))),
      metric.fallback && clause(icon("fallback"), ` fallback ${metric.fallback.policy}: ${metric.fallback.effect}`),
      metric.activation && clause(`${count(metric.activation.measured)} measured; not active up to ${metric.activation.threshold}`),
      !metric.error && calculation(metric, trace.replicas.current) && clause(calculation(metric, trace.replicas.current)),
      podGroups(metric));
  });
  return step("Proposals", null, false, h("ul.proposals", {}, lines));
}

function chosenStep(trace) {
  const { chosen, replicas } = trace;
  if (!chosen) return null;
  const failed = chosen.invalid ? `${plural(chosen.invalid, "metric")} failed. ` : "";
  const text = chosen.policy ? clause(failed, h("span", {}, "The metric policy is ", strong(chosen.policy),
      chosen.metric === undefined ? `. Its value is uncertain, and the count stays ${count(replicas.current)}.` : "."))
    : chosen.metric === undefined
    ? clause(failed, `Nothing is chosen, and the count stays ${count(replicas.current)}.`)
    : clause(failed, trace.metrics.length > 1 ? h("span", {}, "The largest proposal is that of ", strong(chosen.metric), ".")
      : h("span", {}, "The only metric, ", strong(chosen.metric), ", decides."));
  return step("Chosen", chosen.replicas, chosen.replicas !== undefined && chosen.replicas !== replicas.current, text);
}

function heldStep(trace) {
  const held = [stabilized(trace), limited(trace), bounded(trace)].filter(Boolean);
  if (!trace.stabilization && !trace.bounds) return null;
  const before = trace.chosen?.replicas ?? trace.replicas.current;
  const after = trace.bounds?.after ?? trace.stabilization?.stabilized;
  return step("Held by", after, after !== before, held.length ? held : clause("Nothing: windows, policies and bounds leave the count as it is."),
    policies(trace.policies), recommendations(trace.stabilization));
}

function sparedStep({ spared }) {
  if (!spared) return null;
  const { before, after, busy, unknown, idle, floor, error, first } = spared;
  const text = error ? `It is unknown what the pods are doing: ${error}.`
    : `Of the pods, ${busy} hold unfinished work, ${unknown} may, and ${idle} ${idle === 1 ? "is" : "are"} idle.`;
  const kept = floor !== undefined && ` No fewer than ${plural(floor, "replica")} are kept.`;
  return step("Busy pods", after, after !== before, clause(text, kept),
    first?.length && h("details.more", { "data-key": "first" },
      h("summary", {}, `${plural(first.length, "pod")} with the least work ${first.length === 1 ? "goes" : "go"} first`),
      h("ul.facts", {}, first.map((name) => h("li", {}, name)))));
}

function stabilized({ stabilization }) {
  if (!stabilization || stabilization.recommended === stabilization.stabilized) return null;
  const { recommended, heldBy, freesAt, first } = stabilization;
  const down = stabilization.stabilized > recommended;
  const window = down ? stabilization.downWindowSeconds : stabilization.upWindowSeconds;
  return h("div.hold", { "data-key": "window" }, icon("limited"),
    h("p", {}, h("b", {}, "Stabilization window "), `of ${seconds(window ?? 0)}: ${recommended} → `, strong(stabilization.stabilized), ". ",
      first && "The HPA is new, so its present count stands for its past. ",
      heldBy && [`${plural(heldBy.replicas, "replica")} recommended at `, at(heldBy.time)],
      freesAt && [" count until ", at(freesAt)], "."));
}

function limited({ policies, bounds, stabilization }) {
  if (!policies?.limited) return null;
  const wanted = stabilization?.stabilized;
  return h("div.hold", { "data-key": "policies" }, icon("limited"),
    h("p", {}, h("b", {}, policies.direction === "up" ? "Scale-up policies" : "Scale-down policies"),
      policies.select === "Disabled" ? " allow no change: " : policies.direction === "up" ? " allow at most " : " allow no fewer than ",
      strong(count(policies.allows)), wanted !== undefined && `; ${count(wanted)} wanted`, "."));
}

function bounded({ bounds }) {
  if (!bounds?.applied) return null;
  const [name, sign] = bounds.applied === "maximum" ? ["maxReplicas", "atMax"] : ["minReplicas", "atMin"];
  return h("div.hold", { "data-key": "bounds" }, icon(sign),
    h("p", {}, h("b", {}, name), `: ${count(bounds.before)} → `, strong(count(bounds.after)), "."));
}

function policies(found) {
  if (!found?.rules?.length) return null;
  const how = { Max: "the largest counts", Min: "the smallest counts", Disabled: "none is allowed" }[found.select];
  return h("details.more", { "data-key": "rules" },
    h("summary", {}, `${plural(found.rules.length, "policy", "policies")} for scaling ${found.direction}, ${how}`),
    h("ul.facts", {}, found.rules.map((rule) =>
      h("li", {}, strong(count(rule.allows)), ` by ${rule.type === "Percent" ? `${rule.value}%` : plural(rule.value, "pod")}`,
        ` in ${seconds(rule.periodSeconds)}, from ${count(rule.start)}`,
        rule.used > 0 && `; ${plural(rule.used, "pod")} used`, rule.freesAt && [", free again at ", at(rule.freesAt)]))));
}

function recommendations(stabilization) {
  const past = stabilization?.recommendations ?? [];
  if (past.length < 2) return null;
  return h("details.more", { "data-key": "past" },
    h("summary", {}, `${plural(past.length, "past recommendation")} in the window`),
    h("ul.facts.columns", {}, past.toReversed().map((each) => h("li", {}, strong(count(each.replicas)), " at ", at(each.time)))));
}

const OUTCOMES = {
  written: ["ok", "The count was written"],
  failed: ["failing", "The write failed"],
  uncertain: ["failing", "The write may or may not have been carried out"],
  withheld: ["dryRun", "The count was not written"],
};

function writtenStep(trace) {
  const { write, replicas, error } = trace;
  if (!write) {
    const same = error && replicas.desired !== replicas.current ? "Nothing was written." : "There was nothing to write.";
    return step("Written", null, false, clause(same));
  }
  const [mark, text] = OUTCOMES[write.outcome] ?? ["failing", write.outcome];
  const tries = write.attempts?.length > 1 ? ` at attempt ${write.attempts.length}` : "";
  return step("Written", write.outcome === "written" ? write.attempts?.at(-1) : null, write.outcome === "written",
    h("div", { class: mark === "failing" ? "bad" : null }, icon(mark), h("span", {}, text, tries, write.reason ? [": ", folded(write.reason)] : ".")));
}

function haltStep({ halt }) {
  return halt ? step("Stopped", null, true, h("div", {}, strong(halt.reason), ": ", folded(halt.message))) : null;
}

// The cascade of a trace. `sourceStates` are the states of the metric sources by name.
function cascade(trace, sourceStates) {
  return h("ol.cascade", {},
    step("Current", trace.replicas.current, false,
      clause(`${trace.target.kind} ${trace.target.name}: `, plural(trace.replicas.current, "replica"),
        trace.replicas.target !== undefined && ` in shadow, while it has ${count(trace.replicas.target)}`,
        trace.replicas.observed !== trace.replicas.current && `, of which ${count(trace.replicas.observed)} exist`,
        `; ${count(trace.replicas.min)} to ${count(trace.replicas.max)} are allowed.`)),
    haltStep(trace), samplesStep(trace, sourceStates), proposalsStep(trace), chosenStep(trace), heldStep(trace), sparedStep(trace), writtenStep(trace));
}
