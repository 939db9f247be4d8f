/** Machines with their CPU and memory. */

import { el, fill, setText } from "../../core/dom.js";
import * as format from "../../core/format.js";

/**
 * @param {HTMLElement} body
 * @param {readonly Api.Machine[]} machines
 */
export function showMachines(body, machines) {
  const key = machines.map((each) => each.host).join();
  if (body.dataset.key !== key) {
    body.dataset.key = key;
    fill(
      body,
      machines.map((each) => {
        const cpu = meter("cpu", `CPU of ${each.host}`);
        const memory = meter("memory", `memory of ${each.host}`);
        return el(
          "div",
          { class: "machine" },
          el("strong", null, each.host),
          el("span", { class: "muted" }),
          cpu,
          memory,
        );
      }),
    );
  }
  machines.forEach((each, index) => {
    const [, facts, cpu, memory] = /** @type {HTMLElement[]} */ ([...(body.children[index]?.children ?? [])]);
    if (!facts || !cpu || !memory) return;
    const load = each.load1 === null || each.load1 === undefined ? "" : ` · load ${each.load1.toFixed(1)}`;
    setText(
      facts,
      `${format.counted(each.jobs ?? 0, "job")}${each.cpu_count ? ` · ${each.cpu_count} CPUs` : ""}${load}`,
    );
    showMeter(cpu, each.cpu_percent ?? null, 100, `CPU ${format.percent(each.cpu_percent)}`);
    const total = each.memory_total_bytes ?? null;
    showMeter(
      memory,
      each.memory_used_bytes ?? null,
      total,
      `memory ${format.bytes(each.memory_used_bytes)} of ${format.bytes(total)}`,
    );
  });
}

/**
 * @param {string} tone
 * @param {string} label
 */
function meter(tone, label) {
  return el(
    "div",
    { class: "meter-line" },
    el(
      "div",
      {
        class: `meter ${tone}`,
        role: "meter",
        "aria-label": label,
        "aria-valuemin": "0",
        "aria-valuemax": "100",
        "aria-valuenow": "0",
      },
      el("span"),
    ),
    el("span", { class: "meter-text" }),
  );
}

/**
 * @param {HTMLElement} node
 * @param {number | null} value
 * @param {number | null} most
 * @param {string} words
 */
function showMeter(node, value, most, words) {
  const [bar, text] = /** @type {HTMLElement[]} */ ([...node.children]);
  if (!bar || !text) return;
  const share = value === null || !most ? 0 : Math.min(100, (100 * value) / most);
  const filling = /** @type {HTMLElement} */ (bar.firstElementChild);
  filling.style.width = `${share.toFixed(1)}%`;
  bar.setAttribute("aria-valuenow", share.toFixed(0));
  bar.setAttribute("aria-valuetext", words);
  setText(text, words);
}
