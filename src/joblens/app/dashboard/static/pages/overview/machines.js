/** Machines with their CPU and memory. */

import { meter, showMeter } from "../../components/meter.js";
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
