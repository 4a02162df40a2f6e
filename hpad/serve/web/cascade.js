// A decision, stage by stage: the lines of its trace, which `hpad explain` prints as well.

const MARKS = {
  maximum: "atMax", minimum: "atMin", disabled: "paused", paused: "paused", dry_run: "dryRun", shadow: "shadow",
  stabilization: "limited", tolerance: "limited", scale_up_limit: "limited", scale_down_limit: "limited", busy_pods: "limited",
  last_replica: "limited", budget: "limited",
  competing_hpa: "competing",
};

// One stage: its name, the count after it, what it did, and further content.
function stageStep({ stage, label, replicas, text, more, heldBy }, changed, content) {
  return h("li.step", { "data-key": stage, class: changed ? "changed" : null },
    h("div.rail", {}, replicas === undefined ? h("i", {})
      : h("b.after", {}, count(replicas), h("span.hidden", {}, replicas === 1 ? " replica" : " replicas"))),
    h("div.what", {}, h("h3", {}, label),
      text && h("div", { class: heldBy ? "hold" : null }, heldBy && icon(MARKS[heldBy] ?? "failing"), h("div", {}, folded(text))),
      more && h("ul.facts", {}, more.map((line) => h("li", {}, line))),
      content));
}

// The metrics with their facts; each bar is its part of the largest count.
function metricList({ metrics, replicas, chosen }) {
  if (!metrics) return null;
  const most = Math.max(replicas.max, ...metrics.map((metric) => metric.proposal ?? 0), 1);
  return h("ul.proposals", {}, metrics.map((metric, index) =>
    h("li.proposal", { "data-key": metric.address, class: chosen?.metric === metric.address ? "chosen" : null },
      h("div.line", {}, h("span.name", {}, metric.address),
        h("b.number", { class: metric.error ? "bad" : null }, metric.verdict)),
      h("div.bar", { "aria-hidden": "true" },
        h("i", { style: { "--part": `${(100 * (metric.proposal ?? 0)) / most}%`, "--color": `var(--line-${index % LINES})` } })),
      h("dl", {}, (metric.facts ?? []).map(({ label, text }) =>
        [h("dt", {}, label), h("dd", { class: text === metric.error ? "bad" : null }, h("div", {}, folded(text)))])),
      podGroups(metric))));
}

function cascade(trace) {
  let before;
  return h("ol.cascade", {}, (trace.stages ?? []).map((stage) => {
    const changed = before !== undefined && stage.replicas !== undefined && stage.replicas !== before;
    before = stage.replicas;
    return stageStep(stage, changed, stage.stage === "metrics" && metricList(trace));
  }));
}
